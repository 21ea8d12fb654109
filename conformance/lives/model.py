"""What a node must have, as its only client knows it. Plain data: a backup keeps a copy of all of it."""

import copy
import time

READY, MAYBE, OUT, DONE, PENDING, LATER, PERHAPS = "ready", "maybe", "out", "done", "pending", "later", "perhaps later"
# What consumers have said is durable a few milliseconds later; on a busy machine it may take longer until that is so.
GRACE_S = 3.0
GRAVES = "graves"


class Violation(Exception):
    """The broker is wrong."""


def insist(true, *words):
    if not true:
        raise Violation(" ".join(map(str, words)))


def some(ids):
    ids = list(ids)
    return f"{len(ids)}: {', '.join(map(str, ids[:4]))}"


class Link:
    """A message that may become a dead letter: it is in the queue, or among the letters. `definite`: in one of the two."""

    def __init__(self, queue):
        self.queue, self.definite = queue, False


class Item:
    """A message in a queue."""

    def __init__(self, state, priority=0, key=None):
        self.state, self.priority, self.key, self.at = state, priority, key, 0.0
        # A newer record of its key is there, and compaction may take it.
        self.fading = False
        self.offset = None

    def done(self):
        self.state, self.at = DONE, time.monotonic()


class Queue:
    def __init__(self, name, kind="classic", durable=True, arguments=None, topic=None):
        self.name, self.kind, self.durable, self.arguments, self.topic = name, kind, durable, arguments or {}, topic
        self.exists = True
        # Whether all that it has was put there under these names, in this order.
        self.ordered = kind != "quorum" and "x-max-priority" not in self.arguments
        self.items = {}
        self.policy_limit = None
        # Whether delayed messages come here.
        self.late = False

    @property
    def limit(self):
        limits = [one for one in (self.arguments.get("x-max-length"), self.policy_limit) if one is not None]
        return min(limits, default=None)

    @property
    def rejects(self):
        return self.arguments.get("x-overflow") == "reject-publish"

    @property
    def dead(self):
        return "x-dead-letter-exchange" in self.arguments

    @property
    def ages(self):
        return "x-message-ttl" in self.arguments

    def pending(self):
        return any(item.state == PENDING for item in self.items.values())

    def visible(self):
        """Ids before the first record of an open transaction."""
        out = []
        for name, item in self.items.items():
            if item.state == PENDING:
                break
            out.append(name)
        return out

    def those(self, *states):
        return [name for name, item in self.items.items() if item.state in states]


class Record:
    def __init__(self, name, key, state, offset=None):
        self.name, self.key, self.state, self.offset = name, key, state, offset


class Topic:
    def __init__(self, name, partitions, compacted):
        self.name, self.compacted, self.exists = name, compacted, True
        self.logs = [[] for _ in range(partitions)]
        self.starts = [0] * partitions


class Transaction:
    def __init__(self, name):
        self.name, self.producer, self.epoch, self.sequences = name, None, None, {}
        self.open, self.unsure = False, False
        # (queue or None, topic or None, partition, id of the record), offsets as (group, topic, partition): offset.
        self.entries, self.offsets, self.added = [], {}, set()
        # Entries of which nobody knows whether they were written.
        self.doubtful = []


class Model:
    def __init__(self, journals):
        self.journals, self.counter = journals, 0
        self.queues, self.topics, self.transactions = {}, {}, {}
        # Delayed messages by the queue that is deleted: bindings count when they are due, and one of the same name may have them then.
        self.delayed = {}
        # Allowed values by (group, topic, partition); True or False, or None: unknown, by name.
        self.offsets, self.users, self.policies = {}, {}, {}
        # Names that were deleted, and not made again.
        self.dead_queues, self.dead_topics = set(), set()
        self.bound, self.perhaps_bound, self.links, self.bonds = set(), set(), {}, []

    def copy(self):
        return copy.deepcopy(self)

    def new_id(self):
        self.counter += 1
        return self.counter

    def may_repeat(self, queue):
        """With several journals a delayed message, and what has died, is written to one and taken from another: a death between them leaves it twice."""
        return self.journals > 1 and (queue.late or queue.name == GRAVES)

    def living(self, *kinds):
        return [queue for queue in self.queues.values() if queue.exists and (not kinds or queue.kind in kinds)]

    # What ends.

    def drop_queue(self, name):
        queue = self.queues.pop(name, None)
        self.bound.discard(name)
        self.perhaps_bound.discard(name)
        self.dead_queues.add(name)
        for one in [one for one, link in self.links.items() if link.queue == name]:
            del self.links[one]
        delayed = {} if queue is None else {one: item for one, item in queue.items.items() if item.state in (LATER, PERHAPS)}
        for item in delayed.values():
            item.state = PERHAPS
        if delayed:
            self.delayed[name] = delayed
        if queue is not None and queue.topic is None:
            self.forget_offsets(name)
            for transaction in self.transactions.values():
                transaction.entries = [entry for entry in transaction.entries if entry[0] != name]
                transaction.doubtful = [entry for entry in transaction.doubtful if entry[0] != name]
        for bond in self.bonds:
            bond[:] = [entry for entry in bond if entry[0] != name or (queue is not None and queue.topic is not None)]

    def drop_topic(self, name):
        self.topics.pop(name, None)
        self.dead_topics.add(name)
        self.forget_offsets(name)
        for transaction in self.transactions.values():
            transaction.entries = [entry for entry in transaction.entries if entry[1] != name]
            transaction.doubtful = [entry for entry in transaction.doubtful if entry[1] != name]
        for bond in self.bonds:
            bond[:] = [entry for entry in bond if entry[1] != name]

    def forget_offsets(self, topic):
        for key in self.offsets:
            if key[1] == topic:
                self.offsets[key] = {-1}
        for transaction in self.transactions.values():
            for key in [key for key in transaction.offsets if key[1] == topic]:
                del transaction.offsets[key]
            # One of the same name is not in the transaction.
            transaction.added = {one for one in transaction.added if topic not in one}

    # Restarts.

    def connection_lost(self):
        """Unacknowledged messages are ready again."""
        for queue in self.queues.values():
            # What comes back to a full queue may be the oldest, and is dropped.
            is_full = queue.limit is not None and not queue.rejects and len(queue.those(READY, MAYBE, OUT)) > queue.limit
            for item in queue.items.values():
                if item.state == OUT:
                    item.state = MAYBE if is_full else READY

    def restarted(self, killed, at):
        self.connection_lost()
        for name in [queue.name for queue in self.queues.values() if not queue.durable]:
            self.drop_queue(name)
        for queue in self.queues.values():
            for name, item in list(queue.items.items()):
                if item.state == DONE:
                    if name in self.links or killed and at - item.at < GRACE_S:
                        item.state = MAYBE
                    else:
                        del queue.items[name]

    # Transactions.

    def pend(self, entry, state):
        """What one entry of a transaction becomes: `READY`, `MAYBE`, or None, which is nothing."""
        queue, topic, partition, name = entry
        # A queue may be over the topic since.
        queue = self.queues.get(queue or topic)
        if queue is not None and name in queue.items and (topic is None or queue.topic == topic):
            if state is None:
                del queue.items[name]
            elif queue.items[name].state in (PENDING, MAYBE):
                queue.items[name].state = state
        if topic in self.topics:
            for record in self.topics[topic].logs[partition]:
                if record.name == name:
                    record.state = state or "aborted"

    def ended(self, transaction, committed):
        """`committed` is None where nobody knows; then it is all or nothing."""
        state = {True: READY, False: None, None: MAYBE}[committed]
        for entry in transaction.entries:
            self.pend(entry, state)
        for entry in transaction.doubtful:
            self.pend(entry, state and MAYBE)
        for key, offset in transaction.offsets.items():
            if committed:
                self.offsets[key] = {offset}
            elif committed is None:
                self.offsets[key] = self.offsets.get(key, {-1}) | {offset}
        if committed is None:
            self.bonds.append(list(transaction.entries))
        if committed is not False:
            for topic in {entry[1] for entry in transaction.entries} & set(self.topics):
                self.fade(topic)
        transaction.open, transaction.entries, transaction.offsets, transaction.added, transaction.doubtful = False, [], {}, set(), []

    def fade(self, topic):
        """Marks what compaction may take from the queue over a topic."""
        queue = self.queues.get(topic)
        if not self.topics[topic].compacted or queue is None:
            return
        newest = {item.key: name for name, item in queue.items.items() if item.state == READY}
        for record in self.topics[topic].logs[0]:
            # One whose answer has not come may be there, too.
            if record.state in (READY, MAYBE):
                newest[record.key] = record.name
        for name, item in queue.items.items():
            item.fading = newest.get(item.key, name) != name
