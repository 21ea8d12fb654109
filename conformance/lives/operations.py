"""What a client does. Each operation first notes what it may lead to, then does it, then notes what has come of it: where it is interrupted, the
model knows what nobody can know."""

import random
import shutil
import signal
import subprocess
import time

import kafka
import rabbit
from check import Check, ask, body_of, metric, name_of
from driver.broker import Broker
from model import DONE, GRAVES, LATER, MAYBE, OUT, PENDING, PERHAPS, READY, Item, Link, Queue, Record, Topic, Transaction, Violation, insist, some

KEYS = 6
OFFSET_OUT_OF_RANGE = 1
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": GRAVES}
QUEUES = {
    **{f"plain-{number}": ("classic", {}) for number in range(3)},
    **{f"quorum-{number}": ("quorum", {"x-queue-type": "quorum", "x-delivery-limit": -1}) for number in range(2)},
    "priority-0": ("classic", {"x-max-priority": 5}),
    "limited-0": ("classic", {"x-max-length": 20}),
    "limited-1": ("classic", {"x-max-length": 40, **DEAD}),
    "limited-2": ("quorum", {"x-queue-type": "quorum", "x-delivery-limit": -1, "x-max-length": 30}),
    "refusing-0": ("classic", {"x-max-length": 25, "x-overflow": "reject-publish"}),
    "aging-0": ("classic", {"x-message-ttl": 50, **DEAD}),
    "rejected-0": ("classic", DEAD),
    "stream-0": ("stream", {"x-queue-type": "stream"}),
}
TOPICS = {"topic-0": (1, False), "topic-1": (3, False), "topic-2": (1, False), "compact-0": (1, True), "compact-1": (1, True)}
LATE = "late"
# How long an answer may take that perhaps never comes, because the disk fails.
SHORT_S = 3.0


class Operations:
    def weights(self):
        common = {
            self.declare: 10, self.publish: 26, self.publish_to_all: 6, self.take: 14, self.hold: 8, self.let_go: 6, self.reject: 6, self.purge: 3,
            self.delete_queue: 7, self.exclusive: 4, self.auto_delete: 2, self.transient: 2, self.many_small: 4,
            self.create_topic: 8, self.produce: 14, self.attach: 5, self.delete_records: 3, self.delete_topic: 4,
            self.transact: 12, self.finish: 8, self.commit_offset: 6, self.user: 3, self.policy: 4, self.amqp_transaction: 4,
            self.later: 4, self.look: 8, self.read_queue: 3, self.kill: 8, self.kill_soon: 8, self.terminate: 5, self.backup: 3,
        }
        if self.disk is not None and not self.fault:
            common |= {self.fail_disk: 6, self.fill_disk: 3}
        if self.fault:
            common |= {self.terminate: 25, self.kill: 15}
        return {operation: weight for operation, weight in common.items() if operation.__name__ not in self.without}

    def choose(self):
        weights = self.weights()
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def prepare(self):
        model, channel = self.model, self.rabbit.channel()
        channel.call("exchange.declare", exchange="all", type="fanout", durable=True)
        channel.call("exchange.declare", exchange=LATE, type="x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
        channel.call("queue.declare", queue=GRAVES, durable=True)
        model.queues[GRAVES] = Queue(GRAVES)
        model.queues[GRAVES].ordered = False
        channel.close()
        # Where nobody has been made this user may come in without.
        ask(self.broker, "PUT", "/api/users/guest", {"password": "guest", "tags": "administrator"})
        ask(self.broker, "PUT", "/api/permissions/%2F/guest", {"configure": ".*", "write": ".*", "read": ".*"})
        self.rng = random.Random(f"{self.seed} prepare")
        for _ in range(6):
            self.declare()
        for _ in range(2):
            self.create_topic()

    def call(self, name, **values):
        """On a channel of its own; what is refused raises."""
        channel = self.rabbit.channel()
        answer = channel.call(name, **values)
        channel.close()
        return answer

    def pick(self, *kinds, usable=lambda queue: True):
        found = [queue for queue in self.model.living(*kinds) if queue.name != GRAVES and usable(queue)]
        return self.rng.choice(found) if found else None

    def size(self):
        # What a journal's segments have no room for is refused.
        choices = {20: 20, 200: 20, 1000: 20, 5000: 20, 20_000: 12, 50_000: 3, 100_000: 3, 1_000_000: 4, 3_000_000: 1, 6_000_000: 3}
        sizes = [size for size in choices if size <= self.setting.segment * 3 // 8]
        return self.rng.choices(sizes, [choices[size] for size in sizes])[0]

    def amount(self, size):
        return max(1, min(self.rng.choice([1, 3, 10, 30, 100]), 3_000_000 // size))

    # Queues.

    def declare(self):
        name = self.rng.choice(list(QUEUES))
        if name in self.model.queues:
            return
        kind, arguments = QUEUES[name]
        queue = Queue(name, kind, arguments=dict(arguments))
        queue.exists, queue.late = None, False
        if name == "plain-0":
            queue.ordered = False
            queue.items |= self.model.delayed.pop(name, {})
        self.say(f"declare {name}")
        self.model.queues[name] = queue
        self.model.dead_queues.discard(name)
        answer = self.call("queue.declare", queue=name, durable=True, arguments=arguments)
        queue.exists = True
        self.policy_of(queue)
        insist(answer["message-count"] == 0, f"queue {name} is new and has {answer['message-count']} messages")
        if kind != "stream" and not queue.dead and self.rng.random() < 0.4:
            # While nobody knows whether it is bound nothing is published there.
            self.model.perhaps_bound.add(name)
            self.call("queue.bind", queue=name, exchange="all", routing_key="")
            self.model.perhaps_bound.discard(name)
            self.model.bound.add(name)
        if name == "plain-0":
            self.call("queue.bind", queue=name, exchange=LATE, routing_key=name)
            queue.late = True

    def policy_of(self, queue):
        values = self.model.policies.get(f"limit-{queue.name}", {None})
        queue.policy_limit = min((one for one in values if one is not None), default=None)

    def new_items(self, queue, count, state=MAYBE, without_priority=False):
        names = []
        for _ in range(count):
            name = self.model.new_id()
            item = self.new_item(queue, name, state)
            if without_priority:
                item.priority = 0
            names.append(name)
        return names

    def new_item(self, queue, name, state=MAYBE):
        priority = self.rng.randrange(6) if "x-max-priority" in queue.arguments else 0
        item = queue.items[name] = Item(state, priority)
        if queue.dead:
            self.model.links[name] = Link(queue.name)
            self.model.queues[GRAVES].items[name] = Item(MAYBE)
        return item

    def confirmed(self, queue, name):
        if queue.topic is not None and queue.topic in self.model.topics:
            for record in reversed(self.model.topics[queue.topic].logs[0]):
                if record.name == name:
                    record.state = READY
                    break
        if name in queue.items:
            queue.items[name].state = READY
        if name in self.model.links:
            self.model.links[name].definite = True

    def send(self, queue, count, size):
        """Publishes to the queue; what was confirmed is there."""
        names = self.new_items(queue, count)
        if queue.topic is not None:
            log = self.model.topics[queue.topic].logs[0]
            log += [Record(name, None, MAYBE) for name in names]
        before, sure = self.room_taken(queue, names), self.surely_there(queue)
        # Compaction would remove what has no key.
        keyless, tags = queue.topic is not None and self.model.topics[queue.topic].compacted, {}
        for name in names:
            extra = {"priority": queue.items[name].priority} if "x-max-priority" in queue.arguments else {}
            tags[self.publisher.publish("", queue.name, body_of(name, size), **extra)] = name
        try:
            self.publisher.confirms()
        finally:
            for tag, name in tags.items():
                if tag in self.publisher.acked:
                    insist(not keyless, f"{queue.name} takes a message without a key")
                    self.confirmed(queue, name)
                elif tag in self.publisher.nacked and not self.fault:
                    insist(keyless or queue.rejects and before + count > queue.limit, f"a publish to {queue.name} is refused, which has {before} messages")
                    del queue.items[name]
                    if queue.topic is not None:
                        log[:] = [record for record in log if record.name != name]
            self.within(queue, sure, len(self.publisher.acked & set(tags)))

    def surely_there(self, queue):
        """How many messages it has at least."""
        return sum(item.state in (READY, PENDING) and not item.fading for item in queue.items.values())

    def within(self, queue, sure, taken):
        """A queue that refuses takes no more than it may have."""
        fits = self.fault or not queue.rejects or not taken or sure + taken <= queue.arguments["x-max-length"]
        insist(fits, f"{queue.name} takes {taken} messages beside {sure}")

    def room_taken(self, queue, coming):
        """How many messages a queue that refuses may have without those that are coming. From the first record of an open transaction on each record
        counts, also those of transactions that have ended, until that one has."""
        coming, pending = set(coming), queue.rejects and queue.pending()
        known = [name for name in (queue.visible() if pending else queue.items) if name not in coming and queue.items[name].state in (READY, MAYBE)]
        if not pending:
            return len(known)
        _, end = self.kafka.offsets(queue.name, 0)
        return len(known) + end - self.kafka.stable(queue.name, 0)

    def publish(self):
        queue = self.pick()
        if queue is None:
            return
        size = self.size()
        count = self.amount(size)
        self.say(f"publish {count} of {size} bytes to {queue.name}")
        self.send(queue, count, size)
        self.seen(queue)

    def many_small(self):
        """So that a journal's files change."""
        queue = self.pick(usable=lambda queue: queue.limit is None and not queue.ages and queue.topic is None)
        if queue is None:
            return
        size = 8000
        count = min(self.setting.segment // size + 10, 200)
        self.say(f"publish {count} of {size} bytes to {queue.name}")
        self.send(queue, count, size)

    def seen(self, queue):
        """What limits take is known at once."""
        if queue.limit is not None and not self.fault:
            check = self.checking()
            check.queue(queue)
            check.close()

    def checking(self):
        return Check(self.broker, self.model, without=self.without)

    def publish_to_all(self):
        model = self.model
        queues = [model.queues[name] for name in sorted(model.bound)]
        # Where one may have been deleted, or not, nobody knows who gets it.
        if any(queue.rejects or not queue.exists for queue in queues) or model.perhaps_bound or not queues:
            return
        size = min(self.size(), 20_000)
        count = min(self.amount(size), 30)
        self.say(f"publish {count} of {size} bytes to {', '.join(queue.name for queue in queues)}")
        tags = {}
        for _ in range(count):
            name = model.new_id()
            for queue in queues:
                self.new_item(queue, name).priority = 0
            if model.journals == 1:
                model.bonds.append([(queue.name, None, 0, name) for queue in queues if not queue.dead and queue.limit is None])
            tags[self.publisher.publish("all", "", body_of(name, size))] = name
        try:
            self.publisher.confirms()
        finally:
            for tag, name in tags.items():
                if tag in self.publisher.acked:
                    for queue in queues:
                        self.confirmed(queue, name)
                    model.bonds[:] = [bond for bond in model.bonds if not bond or bond[0][3] != name]
        insist(self.fault or not self.publisher.nacked & set(tags), "a publish to all is refused")
        for queue in queues:
            self.seen(queue)

    # Consumers.

    def take(self):
        """Gets some and acknowledges them."""
        queue = self.pick("classic", "quorum", usable=lambda queue: not queue.ages)
        if queue is None:
            return
        count = self.rng.choice([1, 3, 10, 1000])
        self.say(f"take {count} of {queue.name}")
        channel = self.rabbit.channel()
        found = channel.get_all(queue.name, count)
        self.taken(queue, found, count)
        if found:
            for delivery in found:
                queue.items[name_of(delivery.body)].done()
                self.settled(name_of(delivery.body))
            channel.send("basic.ack", delivery_tag=found[-1].tag, multiple=True)
        channel.close()

    def settled(self, name):
        if name in self.model.links:
            self.model.links[name].definite = False

    def taken(self, queue, found, count):
        """What came is what should have come next."""
        names = [name_of(delivery.body) for delivery in found]
        for name in names:
            item = queue.items.get(name)
            # A connection that the failing disk has ended did not read an acknowledgement.
            states = (READY, MAYBE, LATER, PERHAPS, DONE) if self.fault else (READY, MAYBE, LATER, PERHAPS)
            insist(item is not None and item.state in states, f"queue {queue.name} gives {name}, which is {item.state if item else 'not of it'}")
        insist(len(set(names)) == len(names) or queue.late, f"queue {queue.name} gives one twice")
        if queue.ordered and queue.limit is None and not queue.pending():
            ready = [name for name in queue.items if queue.items[name].state == READY and not queue.items[name].fading]
            wanted = [name for name in names if name in set(ready)]
            insist(wanted == ready[:len(wanted)], f"queue {queue.name} gives {wanted[:5]} instead of {ready[:5]}")
        if not queue.pending() and queue.limit is None and not queue.late and queue.name not in self.unclear():
            ready = sum(1 for item in queue.items.values() if item.state == READY and not item.fading)
            insist(len(names) >= min(count, ready), f"queue {queue.name} gives {len(names)}, {ready} should be there")

    def unclear(self):
        """Queues out of which messages go by themselves."""
        return {link.queue for link in self.model.links.values()} if self.fault else {queue.name for queue in self.model.queues.values() if queue.ages}

    def hold(self):
        """A consumer that does not acknowledge for a while."""
        queue = self.pick("classic", "quorum", usable=lambda queue: not queue.ages and not queue.pending())
        if queue is None or len(self.held) > 4:
            return
        prefetch = self.rng.choice([1, 5, 50])
        self.say(f"hold {prefetch} of {queue.name}")
        channel = self.rabbit.channel()
        found = channel.get_all(queue.name, prefetch)
        self.taken(queue, found, prefetch)
        for delivery in found:
            queue.items[name_of(delivery.body)].state = OUT
        self.held.append((channel, queue, found))

    def let_go(self):
        """Acknowledges, returns, or both."""
        if not self.held:
            return
        channel, queue, found = self.held.pop(self.rng.randrange(len(self.held)))
        done = self.rng.randrange(len(found) + 1)
        self.say(f"let go {len(found)} of {queue.name}, {done} of them acknowledged")
        if self.model.queues.get(queue.name) is queue:
            for delivery in found[:done]:
                name = name_of(delivery.body)
                if name in queue.items:
                    queue.items[name].done()
                    self.settled(name)
        if done:
            channel.send("basic.ack", delivery_tag=found[done - 1].tag, multiple=True)
        channel.close()
        for delivery in found[done:]:
            item = queue.items.get(name_of(delivery.body))
            if item is not None and item.state == OUT:
                item.state = READY
        if self.model.queues.get(queue.name) is queue:
            self.seen(queue)

    def reject(self):
        queue = self.pick("classic", usable=lambda queue: queue.dead and not queue.ages and queue.limit is None)
        if queue is None:
            return
        channel = self.rabbit.channel()
        found = channel.get_all(queue.name, self.rng.choice([1, 5, 100]))
        self.say(f"reject {len(found)} of {queue.name}")
        for delivery in found:
            name = name_of(delivery.body)
            states = (READY, MAYBE, DONE) if self.fault else (READY, MAYBE)
            insist(name in queue.items and queue.items[name].state in states, f"queue {queue.name} gives {name}, which is not of it")
            queue.items[name].done()
            if name in self.model.links:
                self.model.links[name].definite = True
            channel.send("basic.nack", delivery_tag=delivery.tag)
        channel.close()

    def purge(self):
        queue = self.pick("classic", "quorum", usable=lambda queue: not queue.pending() and not queue.ages)
        if queue is None:
            return
        if queue.those(LATER):
            # Until they are there nobody knows whether they are purged.
            if self.fault:
                return
            check = self.checking()
            check.queue(queue)
            check.close()
        self.say(f"purge {queue.name}")
        clear = not any(item.state in (MAYBE, LATER, PERHAPS) or item.fading for item in queue.items.values()) and not self.fault and queue.limit is None
        ready = queue.those(READY, MAYBE, LATER)
        sure = len(queue.those(READY))
        for name in ready:
            queue.items[name].state = DONE if queue.items[name].state != LATER else LATER
            queue.items[name].at = time.monotonic() + 1e9
            self.settled(name)
        answer = self.call("queue.purge", queue=queue.name)
        for name in ready:
            queue.items[name].at = time.monotonic()
        counted = answer["message-count"] == sure or answer["message-count"] > sure and self.model.may_repeat(queue)
        insist(not clear or "counts" in self.without or counted, f"purge of {queue.name} counts {answer['message-count']} messages of {sure}")

    def delete_queue(self):
        queue = self.pick()
        if queue is None:
            return
        if self.fault and queue.those(LATER):
            # A deletion that the disk refuses may have been in force until the restart, when they fell due.
            return
        self.say(f"delete queue {queue.name}")
        name, queue.exists = queue.name, None
        if queue.topic is None and queue.name in QUEUES and self.rng.random() < 0.25 and not self.fault:
            self.kafka.delete(name)
        else:
            self.call("queue.delete", queue=name)
        self.model.drop_queue(name)

    def exclusive(self):
        """A connection with a queue of its own, that ends well or not."""
        name = f"exclusive-{self.rng.randrange(3)}"
        self.say(f"exclusive queue {name}")
        self.model.dead_queues.add(name)
        other = rabbit.Connection(self.broker.amqp)
        channel = other.channel(confirms=True)
        channel.call("queue.declare", queue=name, exclusive=True, durable=self.rng.random() < 0.3)
        size = self.size()
        names = [self.model.new_id() for _ in range(self.amount(size))]
        for one in names:
            channel.publish("", name, body_of(one, size))
        channel.confirms()
        channel.acked and self.rng.random() < 0.5 and channel.get_all(name, 3)
        if self.rng.random() < 0.3 and self.doomed is None:
            self.say("and a kill")
            self.restart(signal.SIGKILL)
        other.close() if self.rng.random() < 0.5 else other.drop()

    def auto_delete(self):
        name = "auto-0"
        if name in self.model.queues:
            return
        self.say(f"auto-delete queue {name}")
        self.model.dead_queues.discard(name)
        queue = self.model.queues[name] = Queue(name)
        queue.exists = None
        other = rabbit.Connection(self.broker.amqp)
        channel = other.channel(confirms=True)
        channel.call("queue.declare", queue=name, auto_delete=True, durable=True)
        size = self.size()
        names = self.new_items(queue, self.amount(size))
        for one in names:
            channel.publish("", name, body_of(one, size))
        channel.confirms()
        channel.call("basic.consume", queue=name, consumer_tag="t")
        if self.rng.random() < 0.5:
            channel.call("basic.cancel", consumer_tag="t")
        other.close()
        self.gone(name)

    def gone(self, name):
        """A queue that goes by itself, by and by; where nothing can be written perhaps after a restart."""
        if self.fault:
            return
        until = time.monotonic() + rabbit.PATIENCE_S
        while True:
            try:
                self.call("queue.declare", queue=name, passive=True)
            except rabbit.Refused as refused:
                if refused.code != 404:
                    raise
                break
            insist(time.monotonic() < until, f"queue {name} stays")
            time.sleep(0.01)
        self.model.drop_queue(name)

    def transient(self):
        """A queue that a restart ends."""
        name = "transient-0"
        if name in self.model.queues:
            return
        self.say(f"transient queue {name}")
        self.model.dead_queues.discard(name)
        queue = self.model.queues[name] = Queue(name, durable=False)
        queue.exists = None
        self.call("queue.declare", queue=name)
        queue.exists = True

    def amqp_transaction(self):
        queues = [queue for queue in self.model.living("classic") if queue.limit is None and not queue.ages and not queue.dead and queue.name != GRAVES
                  and queue.durable and not (queue.topic and self.model.topics[queue.topic].compacted) and not queue.pending()]
        if not queues:
            return
        some_queues = self.rng.sample(queues, min(len(queues), self.rng.choice([1, 2])))
        committed = self.rng.random() < 0.7
        self.say(f"tx of {', '.join(queue.name for queue in some_queues)}, {'committed' if committed else 'rolled back'}")
        channel, work = self.rabbit.channel(), []
        channel.call("tx.select")
        for queue in some_queues:
            found = channel.get_all(queue.name, 3)
            self.taken(queue, found, 3)
            for delivery in found:
                queue.items[name_of(delivery.body)].state = OUT
            if found:
                channel.send("basic.ack", delivery_tag=found[-1].tag, multiple=True)
            names = self.new_items(queue, 5, without_priority=True) if committed else [self.model.new_id() for _ in range(5)]
            if queue.topic is not None and committed:
                self.model.topics[queue.topic].logs[0] += [Record(name, None, MAYBE) for name in names]
            for name in names:
                channel.publish("", queue.name, body_of(name, 500))
            work.append((queue, [name_of(delivery.body) for delivery in found], names))
        if not committed:
            channel.call("tx.rollback")
            channel.close()
            for queue, found, _ in work:
                for name in found:
                    queue.items[name].state = READY
            return
        for queue, found, _ in work:
            for name in found:
                queue.items[name].state, queue.items[name].at = DONE, time.monotonic() + 1e9
        channel.call("tx.commit")
        for queue, found, names in work:
            for name in found:
                # This is durable. What a limit has dropped before is not known any more.
                queue.items.pop(name, None)
            for name in names:
                self.confirmed(queue, name)
        channel.close()

    def later(self):
        queue = self.model.queues.get("plain-0")
        if queue is None or not queue.exists or not queue.late:
            return
        count, delay = self.rng.choice([1, 5, 20]), self.rng.choice([1, 100, 400, 1000])
        self.say(f"publish {count} to {queue.name}, later by {delay} ms")
        tags, names = {}, self.new_items(queue, count, PERHAPS)
        for name in names:
            tags[self.publisher.publish(LATE, queue.name, body_of(name, 300), headers={"x-delay": delay})] = name
        try:
            self.publisher.confirms()
        finally:
            for tag, name in tags.items():
                if tag in self.publisher.acked:
                    queue.items[name].state = LATER

    # Topics.

    def create_topic(self):
        name = self.rng.choice(list(TOPICS))
        if name in self.model.topics:
            return
        partitions, compacted = TOPICS[name]
        self.say(f"create topic {name}")
        topic = self.model.topics[name] = Topic(name, partitions, compacted)
        topic.exists = None
        self.model.dead_topics.discard(name)
        configs = {"mainstem.durability": self.rng.choice(["fsync", "memory"])}
        if compacted:
            configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        self.kafka.create(name, partitions, configs)
        topic.exists = True

    def records(self, topic, partition, count, state):
        """Adds them to the model: names and keys."""
        queue, added = self.model.queues.get(topic.name), []
        for _ in range(count):
            name, key = self.model.new_id(), f"key-{self.rng.randrange(KEYS)}".encode()
            topic.logs[partition].append(Record(name, key, state))
            if queue is not None and queue.topic == topic.name:
                queue.items[name] = Item(state, key=key)
            added.append((name, key))
        return added

    def place(self):
        """A queue or a topic's partition."""
        found = [("topic", topic) for topic in self.model.topics.values() if topic.exists]
        found += [("queue", queue) for queue in self.model.living("classic", "quorum") if queue.topic is None and queue.name in QUEUES
                  and not queue.ages and not queue.dead]
        return self.rng.choice(found) if found else (None, None)

    def produce(self):
        kind, one = self.place()
        if one is None:
            return
        # A batch that a journal's files have no room for is refused.
        size = min(self.size(), self.setting.segment // 4)
        count = max(1, min(self.amount(size), 60, self.setting.segment // 4 // size))
        self.say(f"produce {count} of {size} bytes to {one.name}")
        if kind == "queue":
            filled = self.filled_with(one.name, count)
            names = self.new_items(one, count, without_priority=True)
            self.to_queue(one, [(None, body_of(name, size)) for name in names], names, filled)
            return self.seen(one)
        partition = self.rng.randrange(len(one.logs))
        together, filled = self.rng.choice([1, count]), self.filled_with(one.name, count)
        added = self.records(one, partition, count, MAYBE)
        self.model.fade(one.name)
        for at in range(0, count, together):
            part = added[at:at + together]
            try:
                base = self.kafka.produce(one.name, partition, [(key, body_of(name, size)) for name, key in part])
            except kafka.Failed as failed:
                self.unless_full(one.name, failed, [name for name, _ in added[at:]], filled, one)
                break
            for offset, (name, _) in enumerate(part, base):
                self.recorded(one, partition, name, offset)
        self.after_records(one)

    def filled_with(self, name, count):
        """What a queue that refuses may have with so many more; None where none does."""
        queue = self.model.queues.get(name)
        return self.room_taken(queue, ()) + count if queue is not None and queue.rejects else None

    def unless_full(self, name, failed, names, filled, topic=None):
        """A queue that refuses does so to Kafka's clients, too."""
        queue = self.model.queues.get(name)
        if failed.code != 44 or filled is None:
            raise failed
        insist(filled > queue.limit, f"a record for {name} is refused, which has at most {filled} messages with it")
        for one in names:
            queue.items.pop(one, None)
        if topic is not None:
            for log in topic.logs:
                log[:] = [record for record in log if record.name not in set(names)]

    def to_queue(self, queue, records, names, filled):
        try:
            self.kafka.produce(queue.name, 0, records)
        except kafka.Failed as failed:
            return self.unless_full(queue.name, failed, names, filled)
        for name in names:
            self.confirmed(queue, name)

    def recorded(self, topic, partition, name, offset, state=READY):
        record = next(record for record in reversed(topic.logs[partition]) if record.name == name)
        record.state, record.offset = state, offset
        queue = self.model.queues.get(topic.name)
        if queue is not None and queue.topic == topic.name and name in queue.items:
            queue.items[name].state, queue.items[name].offset = state, offset

    def after_records(self, topic):
        self.model.fade(topic.name)
        queue = self.model.queues.get(topic.name)
        if queue is not None and queue.topic == topic.name:
            self.seen(queue)

    def attach(self):
        """A queue over a topic of one partition that is there, from its first record on."""
        topics = [topic for topic in self.model.topics.values() if topic.exists and len(topic.logs) == 1 and topic.name not in self.model.queues]
        if not topics:
            return
        topic = self.rng.choice(topics)
        arguments = {} if "gaps" in self.without else self.rng.choice([{}, {}, {"x-max-length": 30}, {"x-max-length": 30, "x-overflow": "reject-publish"}])
        kind = self.rng.choice(["classic", "quorum"]) if not arguments else "classic"
        if kind == "quorum":
            arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
        self.say(f"declare {kind} {topic.name} over the topic, {arguments}")
        queue = Queue(topic.name, kind, arguments=arguments, topic=topic.name)
        queue.exists = None
        self.model.queues[topic.name] = queue
        self.model.dead_queues.discard(topic.name)
        for record in topic.logs[0]:
            if record.state in (READY, MAYBE, PENDING):
                item = queue.items[record.name] = Item(record.state, key=record.key)
                item.offset = record.offset
        self.model.fade(topic.name)
        self.policy_of(queue)
        self.call("queue.declare", queue=topic.name, durable=True, arguments=arguments)
        queue.exists = True
        self.seen(queue)

    def delete_records(self):
        topics = [topic for topic in self.model.topics.values() if topic.exists and not topic.compacted
                  and not any(record.state == PENDING for log in topic.logs for record in log)]
        if not topics or self.fault:
            return
        topic = self.rng.choice(topics)
        partition = self.rng.randrange(len(topic.logs))
        start, end = self.kafka.offsets(topic.name, partition)
        if start == end:
            return
        found, _ = self.kafka.read(topic.name, partition, start)
        offset = self.rng.randint(start + 1, end)
        at = {name_of(value): where for where, _, value in found}
        self.say(f"delete records of {topic.name}/{partition} before {offset} of {start} to {end}")
        log, queue = topic.logs[partition], self.model.queues.get(topic.name)
        going = {record.name for record in log if at.get(record.name, record.offset) is not None and at.get(record.name, record.offset) < offset}
        if queue is not None and queue.topic == topic.name:
            for name in going & set(queue.items):
                queue.items[name].state, queue.items[name].at = DONE, time.monotonic() + 1e9
        for record in log:
            if record.name in going and record.state == READY:
                record.state = MAYBE
        topic.starts[partition] = None
        low = self.kafka.delete_records(topic.name, partition, offset)
        insist(low == offset, f"records of {topic.name} are deleted up to {low} instead of {offset}")
        topic.starts[partition] = low
        log[:] = [record for record in log if record.name not in going]
        if queue is not None and queue.topic == topic.name:
            for name in going & set(queue.items):
                queue.items[name].at = time.monotonic()
            for held in self.held:
                held[2][:] = [delivery for delivery in held[2] if held[1] is not queue or name_of(delivery.body) not in going]
            self.live_on(queue)

    def live_on(self, queue):
        """A consumer with a prefetch of one gets all that is there."""
        if self.fault or queue.pending() or queue.limit is not None:
            return
        channel = self.rabbit.channel()
        channel.call("basic.qos", prefetch_count=3)
        channel.call("basic.consume", queue=queue.name, consumer_tag="c")
        ready = [name for name in queue.items if queue.items[name].state == READY and not queue.items[name].fading]
        for at in range(min(len(ready), 20)):
            try:
                delivery = channel.delivery()
            except rabbit.Late:
                raise Violation(f"queue {queue.name}: a consumer gets {at} messages of {len(ready)}") from None
            name = name_of(delivery.body)
            insist(name in queue.items and queue.items[name].state in (READY, MAYBE), f"queue {queue.name} gives {name}, which is not of it")
            queue.items[name].done()
            channel.send("basic.ack", delivery_tag=delivery.tag)
        channel.call("basic.cancel", consumer_tag="c")
        channel.close()

    def delete_topic(self):
        topics = [topic for topic in self.model.topics.values() if topic.exists and topic.name not in self.model.queues]
        if not topics:
            return
        topic = self.rng.choice(topics)
        self.say(f"delete topic {topic.name}")
        topic.exists = None
        self.kafka.delete(topic.name)
        self.model.drop_topic(topic.name)

    # Transactions and groups.

    def transact(self):
        """Goes on with a transaction, or begins one."""
        name = f"tx-{self.rng.randrange(2)}"
        transaction = self.model.transactions.setdefault(name, Transaction(name))
        if transaction.unsure:
            # How it ends is found out after the next start.
            return
        if transaction.producer is None or not transaction.open and self.rng.random() < 0.2:
            self.say(f"{name} gets an epoch")
            transaction.unsure = "begin"
            self.kafka.begin(transaction)
            transaction.unsure = False
        transaction.open = True
        for _ in range(self.rng.choice([1, 2, 4])):
            kind, one = self.place()
            if one is None:
                return
            queue = self.model.queues.get(one.name)
            if queue is not None and "gaps" in self.without and queue.limit is not None:
                continue
            partition = 0 if kind == "queue" else self.rng.randrange(len(one.logs))
            count, size = self.rng.choice([1, 10, 40]), self.rng.choice([50, 1000, 5000])
            count = min(count, self.setting.segment // 4 // size)
            self.say(f"{name} writes {count} of {size} bytes to {one.name}/{partition}")
            transaction.unsure, filled = "write", self.filled_with(one.name, count)
            sure = 0 if queue is None else self.surely_there(queue)
            if (one.name, partition) not in transaction.added:
                self.kafka.add(transaction, one.name, partition)
                transaction.added.add((one.name, partition))
            if kind == "queue":
                added = [(each, None) for each in self.new_items(one, count, PENDING, without_priority=True)]
                entries = [(one.name, None, 0, each) for each, _ in added]
            else:
                added = self.records(one, partition, count, PENDING)
                attached = one.name in self.model.queues
                entries = [(one.name if attached else None, one.name, partition, each) for each, _ in added]
            transaction.doubtful += entries
            try:
                base = self.kafka.produce(one.name, partition, [(key, body_of(each, size)) for each, key in added], transaction)
            except kafka.Failed as failed:
                self.unless_full(one.name, failed, [each for each, _ in added], filled, None if kind == "queue" else one)
                del transaction.doubtful[-len(entries):]
                transaction.sequences[one.name, partition] -= count
                transaction.unsure = False
                return self.finish(transaction, False)
            del transaction.doubtful[-len(entries):]
            transaction.entries += entries
            if filled is not None:
                self.within(queue, sure, count)
            if kind == "topic":
                for offset, (each, _) in enumerate(added, base):
                    self.recorded(one, partition, each, offset, PENDING)
            transaction.unsure = False
        topics = [topic for topic in self.model.topics.values() if topic.exists]
        if topics and self.rng.random() < 0.4:
            topic, group = self.rng.choice(topics), f"group-{self.rng.randrange(2)}"
            offset = self.model.new_id()
            self.say(f"{name} commits {offset} of {topic.name} for {group}")
            transaction.unsure = "write"
            self.kafka.add_offsets(transaction, group, topic.name, 0, offset)
            transaction.offsets[group, topic.name, 0] = offset
            transaction.unsure = False
        if self.rng.random() < 0.6:
            self.finish(transaction)

    def finish(self, transaction=None, committed=None):
        if transaction is None:
            found = [one for one in self.model.transactions.values() if one.open and not one.unsure]
            if not found:
                return
            transaction = self.rng.choice(found)
        committed = self.rng.random() < 0.6 if committed is None else committed
        self.say(f"{transaction.name} {'commits' if committed else 'aborts'}")
        touched = {name for entry in transaction.entries for name in entry[:2] if name is not None}
        if not (transaction.added or transaction.offsets):
            transaction.open = False
            return
        transaction.unsure = "end" if committed else "write"
        self.kafka.finish(transaction, committed)
        transaction.unsure = False
        self.model.ended(transaction, committed)
        # Whoever reads now may still wait for the markers.
        self.settle_end(touched)
        for name in sorted(touched):
            if name in self.model.queues and self.model.queues[name].exists:
                self.seen(self.model.queues[name])

    def settle_end(self, touched):
        """Waits until nothing in those logs is open that should not be."""
        until = time.monotonic() + rabbit.PATIENCE_S
        for name in sorted(touched):
            topic, queue = self.model.topics.get(name), self.model.queues.get(name)
            open_now = any(record.state == PENDING for log in topic.logs for record in log) if topic is not None else queue is not None and queue.pending()
            if open_now or topic is None and queue is None:
                continue
            for partition in range(len(topic.logs) if topic is not None else 1):
                while True:
                    _, end = self.kafka.offsets(name, partition)
                    if self.kafka.stable(name, partition) == end:
                        break
                    insist(time.monotonic() < until or self.fault, f"{name}: a transaction that has ended stays open")
                    time.sleep(0.005)

    def commit_offset(self):
        names = sorted([topic.name for topic in self.model.topics.values() if topic.exists] +
                       [queue.name for queue in self.model.living("classic", "quorum") if queue.topic is None and queue.name in QUEUES])
        if not names:
            return
        key = f"group-{self.rng.randrange(2)}", self.rng.choice(names), 0
        offset = self.model.new_id()
        self.say(f"{key[0]} commits {offset} of {key[1]}")
        if any(key in transaction.offsets for transaction in self.model.transactions.values()):
            return
        self.model.offsets[key] = self.model.offsets.get(key, {-1}) | {offset}
        self.kafka.commit_offset(*key, offset)
        self.model.offsets[key] = {offset}

    # Administration.

    def user(self):
        name = f"user-{self.rng.randrange(4)}"
        make = not self.model.users.get(name)
        self.say(f"{'make' if make else 'delete'} user {name}")
        self.model.users[name] = None
        if make:
            ask(self.broker, "PUT", f"/api/users/{name}", {"password": f"word of {name}", "tags": ""})
        else:
            ask(self.broker, "DELETE", f"/api/users/{name}")
        self.model.users[name] = make

    def policy(self):
        if "gaps" in self.without:
            return
        names = [name for name in [*QUEUES, *TOPICS] if not name.startswith(("aging", "plain-0", "stream", "rejected", "topic-1", "priority"))]
        target = self.rng.choice(names)
        policy = f"limit-{target}"
        value = None if self.model.policies.get(policy, {None}) != {None} else self.rng.choice([1, 10, 50])
        self.say(f"policy {policy}: {value}")
        self.model.policies[policy] = self.model.policies.get(policy, {None}) | {value}
        queue = self.model.queues.get(target)
        if queue is not None:
            self.policy_of(queue)
        if value is None:
            ask(self.broker, "DELETE", f"/api/policies/%2F/{policy}")
        else:
            ask(self.broker, "PUT", f"/api/policies/%2F/{policy}", {"pattern": f"^{target}$", "definition": {"max-length": value}, "apply-to": "queues"})
        self.model.policies[policy] = {value}
        if queue is not None and queue.exists:
            if queue.limit is not None and not queue.rejects:
                self.shrinks(queue)
            self.policy_of(queue)
            self.seen(queue)

    def shrinks(self, queue):
        """Until the queue is as long as it may be."""
        until = time.monotonic() + rabbit.PATIENCE_S
        while not self.fault:
            channel = self.rabbit.channel()
            count = channel.count(queue.name)
            channel.close()
            if count <= queue.limit:
                break
            insist(time.monotonic() < until, f"queue {queue.name}: {count} messages stay, {queue.limit} are allowed")
            time.sleep(0.01)

    # Looking.

    def look(self):
        """One queue, or all that is among the dead letters."""
        if self.fault:
            return
        check = self.checking()
        queue = self.pick(usable=lambda queue: not queue.ages)
        if queue is None or self.rng.random() < 0.3:
            self.say("look at dead letters")
            check.letters()
        else:
            self.say(f"look at {queue.name}")
            check.queue(queue)
        check.balanced()
        check.close()

    def read_queue(self):
        """A queue as a Kafka client reads it has what is ready, and no more than was written."""
        queue = self.pick("classic", "quorum", usable=lambda queue: queue.name in QUEUES and not queue.ages)
        if queue is None or self.fault:
            return
        self.say(f"read {queue.name} as a topic")
        names = [name_of(value) for _, _, value in self.from_first(queue.name)]
        insist(len(set(names)) == len(names) or self.model.may_repeat(queue), f"{queue.name}: a record is read twice")
        if queue.limit is None and not queue.dead:
            missing = [name for name in queue.visible() if queue.items[name].state in (READY, OUT) and name not in set(names)]
            insist(not missing, f"{queue.name}: a Kafka client does not read", some(missing))

    def from_first(self, topic):
        """What a purge has ended may go between the two questions."""
        while True:
            start, _ = self.kafka.offsets(topic, 0)
            try:
                return self.kafka.read(topic, 0, start)[0]
            except kafka.Failed as failed:
                if failed.code != OFFSET_OUT_OF_RANGE or self.kafka.offsets(topic, 0)[0] == start:
                    raise

    # Ends.

    def kill(self):
        self.say("SIGKILL")
        self.killed = time.monotonic()
        self.broker.process.kill()
        self.broker.process.wait()
        self.restart(signal.SIGKILL)

    def kill_soon(self):
        if self.doomed is not None:
            return
        after = self.rng.random() * self.rng.choice([0.01, 0.1, 0.5])
        self.say(f"SIGKILL after {after * 1000:.0f} ms")
        self.doom(after)

    def terminate(self):
        self.say("SIGTERM")
        self.restart(signal.SIGTERM)

    def fail_disk(self):
        """Writes and flushes fail from now on, of one journal or all; what stops then stays so until a restart."""
        folder = self.broker.folder
        if self.setting.journals > 1 and self.rng.random() < 0.6:
            folder = f"{folder}/journal-{self.rng.randrange(self.setting.journals)}"
        self.say(f"the disk fails below {folder.removeprefix(str(self.scratch))}")
        self.fault = time.monotonic()
        self.rabbit.patience = self.kafka.patience = SHORT_S
        self.disk.fail(folder)
        if self.rng.random() < 0.5:
            # A transient error: some calls meet it.
            self.short_fault()

    def short_fault(self):
        queue = self.pick("classic", usable=lambda queue: queue.limit is None and not queue.ages)
        try:
            if queue is not None:
                self.send(queue, 3, 100)
        finally:
            self.disk.heal()
            self.say("the disk is well again")

    def fill_disk(self):
        """There is no room for a while; what was published then is there in the end."""
        queue = self.pick("classic", "quorum", usable=lambda queue: queue.limit is None and not queue.ages and queue.topic is None)
        if queue is None:
            return
        self.say(f"the disk is full, publish to {queue.name}")
        self.disk.full(self.broker.folder)
        names, tags = self.new_items(queue, 10, without_priority=True), {}
        for name in names:
            tags[self.publisher.publish("", queue.name, body_of(name, 2000))] = name
        time.sleep(self.rng.choice([0.02, 0.3]))
        self.disk.heal()
        self.publisher.confirms()
        for tag, name in tags.items():
            insist(tag in self.publisher.acked, f"a publish to {queue.name} while the disk was full is refused")
            self.confirmed(queue, name)
        # What had room may have been confirmed before it is found out that there is room again: until then Kafka's producers are refused.
        until = time.monotonic() + rabbit.PATIENCE_S
        while metric(self.broker, "mainstem_journals_disk_full"):
            insist(time.monotonic() < until, "the disk has room again, and data is refused")
            time.sleep(0.02)

    # Backups.

    def backup(self):
        if self.fault or self.doomed is not None or self.setting.segment > 4 << 20:
            return
        self.backups += 1
        began = time.monotonic()
        target, folder = self.scratch / f"backup-{self.backups}", self.scratch / f"restored-{self.backups}"
        word = self.scratch / "word"
        word.write_text("guest")
        words = ["backup", "--to", target, "--admin", f"127.0.0.1:{self.broker.admin}", "--user", "guest", "--password-file", word]
        if "backup_under_load" not in self.without and self.rng.random() < 0.5 and (places := self.places_under_load()):
            self.say(f"backup, with transactions over {', '.join(topic.name for topic, _ in places)} meanwhile, restored elsewhere")
            model = self.under_load(words, places)
            self.disconnect()
            model.connection_lost()
        else:
            self.say("backup, restored elsewhere")
            self.disconnect()
            model = self.model.copy()
            self.command(*words)
        self.command("restore", "--from", target, "--data", folder)
        self.verify(folder)
        model.restarted(True, began)
        other = Broker(self.binary, str(folder), self.setting.flags())
        try:
            other.start()
            self.compare(other, model)
        except (RuntimeError, Violation) as error:
            raise Violation(f"a backup that was restored: {error}") from None
        finally:
            other.process is not None and other.end(signal.SIGKILL)
        shutil.rmtree(target)
        shutil.rmtree(folder)
        self.connect()

    def places_under_load(self):
        """Partitions that get a record of each transaction."""
        topics = [topic for topic in self.model.topics.values() if topic.exists and not topic.compacted and topic.name not in self.model.queues
                  and not any(record.state == PENDING for log in topic.logs for record in log)]
        return [(topic, partition) for topic in topics for partition in range(len(topic.logs))]

    def under_load(self, words, places):
        """What must be in a backup that is made meanwhile: each transaction is whole, with its offset, or not there."""
        name, group, topic = "tx-load", "group-load", places[0][0].name
        transaction = self.model.transactions.setdefault(name, Transaction(name))
        transaction.unsure = "begin"
        self.kafka.begin(transaction)
        transaction.unsure, before, bonds = False, set(self.model.offsets.get((group, topic, 0), {-1})), []
        process = subprocess.Popen([str(self.binary), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while process.poll() is None and len(bonds) < 200:
            transaction.open, transaction.unsure, number = True, "write", self.model.new_id()
            for one, partition in places:
                self.kafka.add(transaction, one.name, partition)
                (each, key), = self.records(one, partition, 1, PENDING)
                entry = (None, one.name, partition, each)
                transaction.entries.append(entry)
                base = self.kafka.produce(one.name, partition, [(key, body_of(each, 300))], transaction)
                self.recorded(one, partition, each, base, PENDING)
            self.kafka.add_offsets(transaction, group, topic, 0, number)
            transaction.offsets[group, topic, 0] = number
            bonds.append([*transaction.entries, ("offset", (group, topic, 0), 0, number)])
            transaction.unsure = "end"
            self.kafka.finish(transaction, True)
            transaction.unsure = False
            self.model.ended(transaction, True)
        said, _ = process.communicate(timeout=60)
        insist(process.returncode == 0, "backup: status", process.returncode, said[-300:])
        model = self.model.copy()
        new = {entry[3] for bond in bonds for entry in bond}
        for one, partition in places:
            for record in model.topics[one.name].logs[partition]:
                if record.name in new:
                    record.state = MAYBE
        model.offsets[group, topic, 0] = before | {bond[-1][3] for bond in bonds}
        model.bonds += bonds
        return model

    def command(self, *words):
        done = subprocess.run([str(self.binary), *map(str, words)], capture_output=True, text=True, timeout=60)
        insist(done.returncode == 0, f"{words[0]}: status {done.returncode}", (done.stdout + done.stderr)[-300:])
