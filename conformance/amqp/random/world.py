"""What a seed makes: queues, exchanges and channels of random kinds, then random operations on them. The operations are chosen while they are
played, because an acknowledgement is of what was delivered; from the same answers a seed makes the same sequence.

What would leave the outcome to chance is not made: a queue that may refuse messages asynchronously (quorum) is sent one at a time; what
has a time to live is waited for, in the operation that publishes it; several messages in one write go to one queue."""

import random

# A time to live, in ms, and how long is waited for what has one.
TTL, EXPIRED = 150, 450
STEPS, STEPS_WITH_TIME = 34, 22
KEYS = ["red", "red.hot", "blue", "blue.cold.ice", "green"]


class World:
    def __init__(self, seed):
        self.random = random.Random(f"queues {seed}")
        self.queues, self.exchanges, self.names = {}, {}, 0
        self.modes, self.waits = {}, False
        self.setup = list(self.prepare())
        self.steps = len(self.setup) + (STEPS_WITH_TIME if self.lives() else STEPS)
        # How often a seed does what: some do much of one thing.
        self.taste = {name: weight * self.random.choice((0.3, 1, 1, 3)) for name, weight in self.WEIGHTS.items()}

    def chance(self, of):
        return self.random.random() < of

    def pick(self, *values):
        return self.random.choice(values)

    # What is there at the start.

    def prepare(self):
        for channel in ("a1", "a2", "b1"):
            self.modes[channel] = self.pick(*["confirm"] * 6, "tx", "plain")
            yield ["open", channel, self.modes[channel], self.pick(0, 0, 1, 2, 3, 5)]
        count = self.pick(1, 2, 2, 3)
        for number in range(self.pick(0, 1, 1, 2)):
            name = f"x{number}"
            other = [one for one in self.exchanges if self.chance(0.5)]
            arguments = {"alternate-exchange": f"@{other[0]}"} if other else {}
            self.exchanges[name] = self.pick("direct", "topic", "fanout", "headers")
            yield ["exchange", "a1", name, self.exchanges[name], arguments]
        for number in range(count):
            yield self.declaration(f"q{number}", [f"q{other}" for other in range(count)])
        for name, kind in self.exchanges.items():
            for queue in self.queues:
                if self.chance(0.75):
                    yield ["bind", "a1", queue, name, *self.binding(kind)]
        if len(self.exchanges) == 2 and self.chance(0.5):
            yield ["bind-exchange", "a1", "x1", "x0", *self.binding(self.exchanges["x0"])]

    def binding(self, kind):
        """A key and arguments."""
        if kind == "headers":
            match = self.pick({}, {"x-match": "all"}, {"x-match": "any"}, {"x-match": "any-with-x"})
            return "", {**match, "colour": self.pick("red", "blue"), **({"size": self.pick(1, 2)} if self.chance(0.5) else {})}
        if kind == "topic":
            return self.pick("#", "red.#", "*", "*.hot", "blue.*.ice", "red"), {}
        return self.pick(*KEYS[:3]), {}

    def declaration(self, name, others):
        quorum = self.chance(0.5)
        arguments, flags = {"x-queue-type": "quorum"} if quorum else {}, ["durable"]
        if not quorum and self.chance(0.15):
            flags = ["exclusive"]
        if not quorum and self.chance(0.1):
            flags.append("auto_delete")
        if not quorum and self.chance(0.3):
            arguments["x-max-priority"] = self.pick(1, 3, 10)
        if self.chance(0.2):
            arguments["x-single-active-consumer"] = True
        if self.chance(0.45):
            length = {"x-max-length": self.pick(0, 1, 2, 3, 5)}
            # A quorum queue of RabbitMQ counts properties as well as bodies.
            arguments.update(length if quorum else self.pick(length, {"x-max-length-bytes": self.pick(10, 25, 60)}))
            overflow = self.pick(None, "drop-head", "reject-publish", *[] if quorum else ["reject-publish-dlx"])
            if overflow:
                arguments["x-overflow"] = overflow
        if self.chance(0.55):
            if self.exchanges and self.chance(0.4):
                arguments["x-dead-letter-exchange"] = "@" + self.pick(*self.exchanges)
                if self.chance(0.5):
                    arguments["x-dead-letter-routing-key"] = self.pick(*KEYS)
            else:
                arguments["x-dead-letter-exchange"] = ""
                arguments["x-dead-letter-routing-key"] = "@" + self.pick(*others)
            if quorum and arguments.get("x-overflow") == "reject-publish" and self.chance(0.5):
                arguments["x-dead-letter-strategy"] = "at-least-once"
        if self.chance(0.1):
            arguments["x-message-ttl"] = TTL
        if quorum and self.chance(0.5):
            arguments["x-delivery-limit"] = self.pick(0, 1, 2, 3)
        self.queues[name] = {"flags": flags, "arguments": arguments, "there": True}
        return ["declare", "a1", name, flags, arguments]

    # What is done with it.

    WEIGHTS = {"publish": 9, "consume": 4, "cancel": 1.2, "settle": 9, "settle_many": 3, "get": 3, "recover": 0.5, "purge": 0.5, "delete": 0.5,
               "declare": 0.7, "close": 0.7, "drop": 0.3, "qos": 0.7, "end_transaction": 1, "rebind": 0.5, "mistake": 0.3}

    def next(self, player):
        """The next operation."""
        if self.waits:
            self.waits = False
            return ["wait", "a1", EXPIRED]
        shut = [name for name, channel in player.channels.items() if not channel.open]
        if shut:
            return ["open", shut[0], self.modes[shut[0]], self.pick(0, 0, 1, 2, 3, 5)]
        for name, queue in self.queues.items():
            queue["there"] = not player.counts.get(1000 + player.queues.index(name), "404").startswith("40")
        while True:
            kind = self.random.choices(list(self.taste), self.taste.values())[0]
            operation = getattr(self, kind)(player, self.pick(*player.channels))
            if operation:
                # What may have become a dead letter of a queue with a time to live has it from now on.
                self.waits = self.lives() and kind in ("settle", "settle_many", "close", "drop", "recover", "cancel", "end_transaction", "mistake",
                                                       "declare")
                return operation

    def queue(self, channel):
        """A queue that is there and that the channel may use."""
        there = [name for name, one in self.queues.items() if one["there"] and (channel[0] == "a" or "exclusive" not in one["flags"])]
        return self.pick(*there) if there else None

    def lives(self):
        return any("x-message-ttl" in one["arguments"] for one in self.queues.values())

    def message(self, expires):
        self.names += 1
        properties = {}
        if self.chance(0.35):
            properties["priority"] = self.pick(0, 1, 2, 4, 5, 9, 40)
        if expires and self.chance(0.5):
            properties["expiration"] = self.pick("0", str(TTL), str(TTL))
        if self.chance(0.4):
            properties["headers"] = {"colour": self.pick("red", "blue"), "size": self.pick(1, 2)}
        if self.exchanges and self.chance(0.08):
            properties.setdefault("headers", {})[self.pick("CC", "BCC")] = [self.pick(*KEYS)]
        return [f"m{self.names}.".ljust(self.pick(5, 8, 20), "x"), properties]

    def publish(self, _player, channel):
        expires = self.chance(0.1)
        wait = EXPIRED if expires or self.lives() else 0
        mandatory = self.chance(0.15)
        if self.exchanges and self.chance(0.35):
            return ["publish", channel, self.pick(*self.exchanges), self.pick(*KEYS), mandatory, [self.message(expires)], wait]
        name = self.queue(channel)
        if name is None or self.chance(0.04):
            return ["publish", channel, "", "nowhere", mandatory, [self.message(expires)], wait]
        arguments = self.queues[name]["arguments"]
        alone = arguments.get("x-queue-type") == "quorum" and arguments.get("x-overflow") == "reject-publish"
        count = 1 if alone else self.pick(1, 1, 2, 3, 5)
        return ["publish", channel, "", name, mandatory, [self.message(expires) for _ in range(count)], wait]

    def consume(self, player, channel):
        name = self.queue(channel)
        if name is None or sum(len(one.consumers) for one in player.channels.values()) >= 5:
            return None
        self.names += 1
        quorum = self.queues[name]["arguments"].get("x-queue-type") == "quorum"
        arguments = {"x-priority": self.pick(-1, 1, 5)} if self.chance(0.25) else {}
        return ["consume", channel, name, f"c{self.names}", self.chance(0.15), not quorum and self.chance(0.06), arguments]

    def cancel(self, player, channel):
        consumers = list(player.channels[channel].consumers)
        return ["cancel", channel, self.pick(*consumers)] if consumers else None

    def settle(self, player, channel):
        """One message, most often the oldest or the newest."""
        unacked = player.channels[channel].unacked
        if not unacked:
            return None
        tag = self.pick(unacked[0], unacked[-1], self.pick(*unacked))
        return self.pick(["ack", channel, tag, False], ["ack", channel, tag, False], ["nack", channel, tag, False, True],
                         ["nack", channel, tag, False, False], ["reject", channel, tag, True], ["reject", channel, tag, False])

    def settle_many(self, player, channel):
        unacked = player.channels[channel].unacked
        if not unacked:
            return None
        tag = self.pick(0, unacked[-1], self.pick(*unacked))
        return self.pick(["ack", channel, tag, True], ["nack", channel, tag, True, True], ["nack", channel, tag, True, False])

    def get(self, _player, channel):
        name = self.queue(channel)
        return ["get", channel, name, self.chance(0.3)] if name else None

    def recover(self, player, channel):
        # Within a transaction what is recovered and what was acknowledged in it would be two matters.
        return ["recover", channel] if player.channels[channel].unacked and self.modes[channel] != "tx" else None

    def purge(self, _player, channel):
        name = self.queue(channel)
        return ["purge", channel, name] if name else None

    def delete(self, _player, channel):
        name = self.queue(channel)
        if name is None:
            return None
        quorum = self.queues[name]["arguments"].get("x-queue-type") == "quorum"
        return ["delete", channel, name, not quorum and self.chance(0.4), not quorum and self.chance(0.4)]

    def declare(self, _player, _channel):
        """Once more as it is, or otherwise; or a new one of the same name."""
        name = self.pick(*self.queues)
        queue = self.queues[name]
        if not queue["there"]:
            return self.declaration(name, list(self.queues))
        if self.chance(0.6):
            return ["declare", "a1", name, queue["flags"], queue["arguments"]]
        return ["declare", "a1", name, queue["flags"], {**queue["arguments"], "x-max-length": 77}]

    def close(self, _player, channel):
        return ["close", channel]

    def drop(self, _player, _channel):
        return ["drop", "b"]

    def qos(self, _player, channel):
        return ["qos", channel, self.pick(0, 1, 2, 4)]

    def end_transaction(self, _player, channel):
        return [self.pick("commit", "commit", "rollback"), channel] if self.modes[channel] == "tx" else None

    def rebind(self, _player, _channel):
        name = self.queue("a1")
        if name is None or not self.exchanges:
            return None
        exchange = self.pick(*self.exchanges)
        return [self.pick("bind", "unbind"), "a1", name, exchange, *self.binding(self.exchanges[exchange])]

    def mistake(self, player, channel):
        """What closes the channel."""
        name = self.queue(channel)
        return self.pick(["ack", channel, 999, False], ["nack", channel, 999, True, True], ["publish", channel, "nobody", "", False, [self.message(False)], 0],
                         ["consume", channel, "nobody", "c0", False, False, {}], ["get", channel, "nobody", True],
                         ["purge", channel, "nobody"], ["ack", channel, 0, False])
