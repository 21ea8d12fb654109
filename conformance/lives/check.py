"""Compares what a node has with what it must have. What was unknown, and is seen now, is known from then on."""

import base64
import json
import time
import urllib.error
import urllib.request
from urllib.parse import quote

import kafka
import rabbit
from model import DONE, GRAVES, LATER, MAYBE, OUT, PENDING, READY, insist, some

SETTLES_S = 30.0


def body_of(name, size):
    """What message `name` has: its own number, its length, and bytes that no other has."""
    start = b"%d:%d|" % (name, size)
    return start + (start * (size // len(start) + 1))[:size]


def name_of(body):
    """The number of a message, which has to be whole."""
    start = body.split(b"|", 1)[0]
    name, _, size = start.partition(b":")
    insist(name.isdigit() and size.isdigit() and body == body_of(int(name), int(size)), "a message is not what anybody wrote:", body[:60])
    return int(name)


def ask(broker, method, path, body=None, user="guest", password="guest"):
    """Management; None where there is nothing of that name."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{broker.admin}{path}", data, {"Content-Type": "application/json"}, method=method)
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=rabbit.PATIENCE_S) as answer:
            said = answer.read()
            return json.loads(said) if said else {}
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise kafka.Failed(f"{method} {path}", error.code) from None
    except (OSError, ValueError):
        raise rabbit.Gone from None


def metric(broker, name):
    lines = broker.metrics().splitlines()
    found = [float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name]
    return sum(found) if found else None


class Check:
    def __init__(self, broker, model, without=()):
        self.broker, self.model, self.without = broker, model, without
        self.rabbit, self.kafka = rabbit.Connection(broker.amqp), kafka.Client(broker.bootstrap)

    def close(self):
        self.rabbit.drop()
        self.kafka.close()

    def everything(self):
        """After a start, when no client has done anything yet."""
        model, until = self.model, time.monotonic() + SETTLES_S
        while ending := self.kafka.ending():
            # Until then a part of what belongs together is not seen.
            insist(time.monotonic() < until, "an end that was decided is not carried out:", some(ending))
            time.sleep(0.01)
        self.policies()
        self.existence()
        topics = self.kafka.topics()
        for name in sorted(model.topics):
            topic = model.topics[name]
            if topic.exists is None:
                if name not in topics:
                    model.drop_topic(name)
                    continue
                topic.exists = True
            insist(name in topics, f"topic {name} is gone")
            self.topic(topic)
        for name in sorted(model.dead_topics):
            insist(name not in topics or name in model.queues, f"topic {name} was deleted and is there")
        seen = {}
        for queue in sorted(model.living(), key=lambda queue: queue.name == GRAVES):
            seen[queue.name] = self.queue(queue, restarted=True)
        self.linked(set(seen[GRAVES]))
        self.bonds(seen)
        self.offsets()
        self.users()

    def existence(self):
        model = self.model
        for name in sorted(model.queues):
            queue = model.queues[name]
            there = self.there(name)
            if queue.exists is None:
                queue.exists = there
                if not there:
                    model.drop_queue(name)
            else:
                insist(there, f"queue {name} is gone")
        for name in sorted(model.dead_queues):
            insist(not self.there(name), f"queue {name} was deleted and is there")

    def there(self, name):
        channel = self.rabbit.channel()
        try:
            channel.call("queue.declare", queue=name, passive=True)
        except rabbit.Refused as refused:
            insist(refused.code == 404, f"queue {name}: {refused}")
            return False
        channel.close()
        return True

    # Queues.

    def queue(self, queue, restarted=False, until=None):
        """Names of what is ready, in the order of the queue."""
        until = until or time.monotonic() + SETTLES_S
        if queue.kind == "stream":
            return self.stream(queue)
        if queue.ages:
            self.aged(queue)
        self.awaited(queue)
        if queue.limit is not None and not queue.rejects:
            self.shortened(queue)
        channel = self.rabbit.channel()
        count = channel.count(queue.name)
        found = channel.get_all(queue.name)
        names = [name_of(delivery.body) for delivery in found]
        channel.close()
        # After a start what a quorum queue knows of as returned is served first.
        self.judge(queue, names, 1 if queue.ordered else 2 if restarted and queue.kind == "quorum" else 0)
        if count != len(names) and self.is_compacted(queue) and time.monotonic() < until:
            # Compaction has come between the two questions.
            return self.queue(queue, restarted, until)
        if not queue.pending() and not queue.ages and "counts" not in self.without:
            insist(count == len(names), f"queue {queue.name}: declare-ok counts {count} messages, {len(names)} are there")
        # What was on this channel is there again before anything else is done.
        until = time.monotonic() + SETTLES_S
        channel = self.rabbit.channel()
        while channel.count(queue.name) not in (count, len(names)) and not queue.ages and not queue.pending() and not self.is_compacted(queue):
            insist(time.monotonic() < until, f"queue {queue.name}: of {len(names)} that came back {channel.count(queue.name)} are counted")
            time.sleep(0.005)
        channel.close()
        return names

    def is_compacted(self, queue):
        topic = self.model.topics.get(queue.topic)
        return topic is not None and topic.compacted

    def judge(self, queue, names, parts):
        """`parts`: of how many parts, each in the order of the queue, the answer consists at most; 0: there is no order."""
        model, items = self.model, queue.items
        where, seen = f"queue {queue.name}:", set(names)
        twice = model.may_repeat(queue)
        insist(len(seen) == len(names) or twice, where, "there more than once are",
               some(sorted({name for name in names if names.count(name) > 1})))
        foreign = [name for name in names if name not in items]
        insist(not foreign, where, "what is not of it, or was done with, is there:", some(foreign))
        wrong = [name for name in names if items[name].state in (OUT, DONE, PENDING)]
        insist(not wrong, where, "what nobody should get is there:", some(f"{name} {items[name].state}" for name in wrong))
        if parts:
            order = {name: at for at, name in enumerate(items)}
            behind = [f"{name} before {next_one}" for name, next_one in zip(names, names[1:]) if order[name] > order[next_one]]
            insist(len(behind) < parts, where, "out of order:", some(behind))
        elif "x-max-priority" in queue.arguments:
            levels = [items[name].priority for name in names]
            insist(levels == sorted(levels, reverse=True), where, "priorities out of order:", levels[:20])
        visible = queue.visible()
        missing = [name for name in visible if items[name].state == READY and not items[name].fading and name not in seen]
        if queue.limit is not None and not queue.rejects:
            missing = self.over_limit(queue, names, missing)
        elif queue.ages:
            missing = []
        missing = [name for name in missing if not (queue.dead and name in model.links)]
        insist(not missing, where, f"{len(names)} are there, missing are", some(missing), f"of {len(items)}")
        # What is known now.
        for name in visible:
            if name in seen:
                items[name].state = READY
            elif items[name].state in (READY, MAYBE) and not items[name].fading and not (queue.name == GRAVES and name in model.links):
                if queue.limit is not None and not queue.rejects:
                    # What a limit has dropped comes again after a kill, as what a consumer has acknowledged does, and others are dropped then.
                    items[name].done()
                else:
                    del items[name]

    def over_limit(self, queue, names, missing):
        """The oldest may be missing, as many as it takes; what is no longer there for that reason is taken out of `missing`."""
        insist(len(names) <= queue.limit, f"queue {queue.name}: {len(names)} messages, {queue.limit} are allowed")
        if not missing:
            return []
        kept = [name for name, item in queue.items.items() if item.state == READY and not item.fading]
        first = next((at for at, name in enumerate(kept) if name in set(names)), len(kept))
        behind = [name for name in missing if name in kept[first:]]
        # What comes back to a quorum queue is not where it was, and what is dropped then is not the oldest.
        insist(not behind or queue.kind == "quorum", f"queue {queue.name}: newer ones than some that are there are missing:", some(behind))
        unsure = sum(1 for item in queue.items.values() if item.state == MAYBE)
        insist(len(names) + unsure >= queue.limit, f"queue {queue.name}: {len(names)} of at most {queue.limit} messages are there, missing are", some(missing))
        return []

    def aged(self, queue):
        """Waits until all have run out of time."""
        until, channel = time.monotonic() + SETTLES_S, self.rabbit.channel()
        while (count := channel.count(queue.name)) and not queue.pending():
            insist(time.monotonic() < until, f"queue {queue.name}: {count} messages stay though their time is over")
            time.sleep(0.02)
        channel.close()

    def shortened(self, queue):
        """Waits until the queue is as long as it may be."""
        until, channel = time.monotonic() + SETTLES_S, self.rabbit.channel()
        while (count := channel.count(queue.name)) > queue.limit and not queue.pending() and "counts" not in self.without:
            insist(time.monotonic() < until, f"queue {queue.name}: {count} messages stay, {queue.limit} are allowed")
            time.sleep(0.01)
        channel.close()

    def awaited(self, queue):
        """Waits for what has to arrive: dead letters, delayed messages."""
        model, items = self.model, queue.items
        due = [name for name, item in items.items() if item.state == LATER] if not queue.pending() else []
        if queue.name == GRAVES:
            due = [name for name, link in model.links.items() if link.definite and items[name].state not in (DONE, OUT) and not self.is_in(link.queue, name)]
        until = time.monotonic() + SETTLES_S
        while due:
            channel = self.rabbit.channel()
            names = {name_of(delivery.body) for delivery in channel.get_all(queue.name)}
            channel.close()
            due = [name for name in due if name not in names]
            insist(time.monotonic() < until, f"queue {queue.name}: what should have arrived has not:", some(due))
            time.sleep(0.02 if due else 0)

    def is_in(self, queue, name):
        item = self.model.queues[queue].items.get(name)
        return item is not None and item.state in (READY, OUT, MAYBE)

    def letters(self):
        """Each dead letter is in one of its two queues."""
        model = self.model
        for name in sorted({link.queue for link in model.links.values()}):
            self.queue(model.queues[name])
        graves = model.queues[GRAVES]
        seen = self.queue(graves)
        self.linked(set(seen))
        return seen

    def linked(self, seen):
        model = self.model
        for name, link in list(model.links.items()):
            if name in seen or model.queues[GRAVES].items[name].state in (DONE, OUT):
                twice = self.is_in(link.queue, name)
                insist(not twice or model.journals > 1, f"message {name} is in {link.queue} and among the dead letters")
                if not twice:
                    del model.links[name]

    def stream(self, queue):
        names = [name_of(value) for _, _, value in self.read(queue.name, 0)]
        insist(names == sorted(set(names), key=names.index), f"stream {queue.name}: twice")
        self.judge(queue, names, 1)
        return names

    # Topics.

    def read(self, topic, partition):
        start, _ = self.kafka.offsets(topic, partition)
        return self.kafka.read(topic, partition, start)[0]

    def topic(self, topic):
        for partition, log in enumerate(topic.logs):
            start, end = self.kafka.offsets(topic.name, partition)
            insist(start == topic.starts[partition] or topic.starts[partition] is None or topic.compacted,
                   f"{topic.name}/{partition} begins at {start} instead of {topic.starts[partition]}")
            found, stable = self.kafka.read(topic.name, partition, start)
            self.records(topic, partition, log, start, found)

    def records(self, topic, partition, log, start, found):
        where = f"{topic.name}/{partition}:"
        by_name = {record.name: record for record in log}
        names = [name_of(value) for _, _, value in found]
        insist(len(set(names)) == len(names), where, "there more than once are", some(sorted({name for name in names if names.count(name) > 1})))
        offsets = [offset for offset, _, _ in found]
        insist(offsets == sorted(set(offsets)), where, "offsets do not ascend")
        foreign = [name for name in names if name not in by_name or by_name[name].state in ("aborted", PENDING)]
        insist(not foreign, where, "records that should not be there:", some(f"{name} {by_name[name].state if name in by_name else 'unknown'}" for name in foreign))
        order = {record.name: at for at, record in enumerate(log)}
        places = [order[name] for name in names]
        insist(places == sorted(places), where, "records are out of order")
        moved = [name for name, offset in zip(names, offsets) if by_name[name].offset not in (None, offset)]
        insist(not moved, where, "records have other offsets than before:", some(moved))
        for name, offset in zip(names, offsets):
            by_name[name].offset = offset
        seen, needed = set(names), []
        for record in log:
            if record.state == PENDING:
                break
            if record.state == READY and (record.offset is None or record.offset >= start):
                needed.append(record)
        if topic.compacted:
            newest = {record.key: record for record in log if record.state == READY}
            unsure = {record.key for record in log if record.state in (MAYBE, PENDING)}
            needed = [record for record in needed if newest[record.key] is record and record.key not in unsure]
        missing = [record.name for record in needed if record.name not in seen]
        insist(not missing, where, f"{len(found)} records are there, missing are", some(missing), "of", len(log))
        before_open = True
        for record in log:
            before_open = before_open and record.state != PENDING
            if record.state == MAYBE and before_open:
                if record.name in seen:
                    record.state = READY
                elif not topic.compacted:
                    record.state = "aborted"
        # A name that deletion has taken is not looked for again.
        log[:] = [record for record in log if record.state != READY or record.name in seen or topic.compacted or not before_open]

    # The rest.

    def bonds(self, seen):
        """What was to be there as a whole, or not at all. Behind the first record of an open transaction nobody sees what is there."""
        for bond in self.model.bonds:
            found = []
            for queue, topic, partition, name in bond:
                if queue == "offset":
                    if topic[1] in self.model.topics:
                        found.append((queue, name, self.kafka.committed_offset(*topic) >= name))
                elif topic is not None and topic in self.model.topics:
                    log = self.model.topics[topic].logs[partition]
                    if not self.model.topics[topic].compacted and not any(record.state == PENDING for record in log):
                        found.append((topic, name, any(record.name == name and record.state == READY for record in log)))
                elif queue in self.model.queues and queue in seen:
                    one = self.model.queues[queue]
                    if one.limit is None and not one.ages and not one.pending():
                        found.append((queue, name, name in seen[queue]))
            insist(len({there for _, _, there in found}) <= 1, "of what belongs together a part is there:", some(f"{where} {name} {there}" for where, name, there in found))
        self.model.bonds = []

    def offsets(self):
        for (group, topic, partition), allowed in sorted(self.model.offsets.items()):
            found = self.kafka.committed_offset(group, topic, partition)
            insist(found in allowed or "offsets" in self.without, f"group {group} has committed {found} of {topic}/{partition}, it should be {sorted(allowed)}")
            self.model.offsets[group, topic, partition] = {found}

    def users(self):
        names = {one["name"] for one in ask(self.broker, "GET", "/api/users")}
        for name, there in sorted(self.model.users.items()):
            insist(there in (None, name in names), f"user {name}: {name in names} instead of {there}")
            self.model.users[name] = name in names

    def policies(self):
        found = {one["name"]: one["definition"].get("max-length") for one in ask(self.broker, "GET", "/api/policies")}
        for name, allowed in sorted(self.model.policies.items()):
            insist(found.get(name) in allowed, f"policy {name} has {found.get(name)}, it should be one of {allowed}")
            self.model.policies[name] = {found.get(name)}
        self.apply_policies()

    def apply_policies(self):
        for queue in self.model.queues.values():
            values = self.model.policies.get(f"limit-{queue.name}", {None})
            queue.policy_limit = next(iter(values))

    def balanced(self):
        value = metric(self.broker, "mainstem_queue_imbalance")
        insist(value in (None, 0), f"mainstem_queue_imbalance is {value}")
