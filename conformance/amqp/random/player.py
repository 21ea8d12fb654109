"""Plays operations against a broker and notes what clients see: one list of events a channel, and the counts of every queue. An operation is
a list: its name, the channel, then what it needs (see the methods called `do_...`). Names of queues and exchanges get a prefix of the
play's own, which is taken off everything that is noted; so are the times of `x-death`.

What an operation has led to is there when several rounds in a row bring nothing new: in a round each queue is asked for its counts, and
then each channel answers a harmless method, so that what the queues have sent to it has come before. Where the outcome is known
already (`expected`) two rounds that bring it are enough: what comes later shows in the next step."""

import json
import time

import wire
from client import Closed, Link

# How many rounds without anything new end a step, and how long each lasts, in s.
ROUNDS, PAUSE = 5, 0.015
# How long an expected outcome may take, in s.
PATIENCE = 4.0
# Numbers of the channels that ask for counts, of the first connection.
ASKING = 1000


class Channel:
    """What the client knows of a channel."""

    def __init__(self, name, link, number):
        self.name, self.link, self.number = name, link, number
        self.open, self.mode, self.prefetch = False, "plain", 0
        self.forget()

    def forget(self):
        self.events, self.answer, self.content = [], None, None
        # Delivery tags that are not acknowledged; consumers by tag, with their queue and whether they do not acknowledge.
        self.unacked, self.consumers, self.asked_without_ack = [], {}, False
        # Bodies by number of the publish, and the outcome of those that have one.
        self.published, self.open_publishes, self.outcomes = {}, set(), {}
        # Acknowledged in the transaction that is open.
        self.held = []


class Player:
    def __init__(self, address, prefix, records=False):
        self.address, self.prefix, self.records = address, prefix, records
        self.quorum = set()
        self.links, self.channels, self.queues, self.made = {}, {}, [], []
        self.dead = None
        for connection, names in {"a": ("a1", "a2"), "b": ("b1",)}.items():
            self.connect(connection, names)
        self.asking = set()

    # Connections and channels.

    def connect(self, connection, names):
        link = self.links[connection] = Link(self.address).open()
        for name in names:
            self.channels[name] = Channel(name, link, int(name[1:]))

    def on(self, link, number):
        return next((one for one in self.channels.values() if one.link is link and one.number == number), None)

    def receive(self, link):
        """Takes a frame: content belongs to the method before it."""
        kind, number, payload = link.receive()
        channel = self.on(link, number)
        if channel is None:
            return self.asked(link, number, wire.decode(payload))
        if kind == wire.METHOD:
            name, fields = wire.decode(payload)
            if name in ("basic.deliver", "basic.get-ok", "basic.return"):
                channel.content = [name, fields, None, {}, b""]
            else:
                self.take(channel, name, fields)
            return
        content = channel.content
        if kind == wire.HEADER:
            content[2], content[3] = wire.properties(payload)
        else:
            content[4] += payload
        if len(content[4]) >= content[2]:
            channel.content = None
            self.take_message(channel, *content)

    def asked(self, link, number, method):
        """An answer on a channel that asks for counts, or what a connection says of itself. That it is blocked, and free again, is no
        answer: a broker says so when its disk is slow or its memory short, on a busy machine, and goes on afterwards."""
        name, fields = method
        if name == "channel.close":
            link.method(number, "channel.close-ok")
            self.asking.discard(number)
            self.counts[number] = str(fields["reply-code"])
        elif name == "queue.declare-ok":
            self.counts[number] = f"{fields['message-count']}/{self.consumers(self.queues[number - ASKING], fields['consumer-count'])}"
        elif name == "connection.close":
            self.dead = self.plain(f"{name} {fields}")
            raise Closed

    def consumers(self, queue, counted):
        """How many there are. RabbitMQ counts otherwise in a quorum queue: those that have gone as long as they have something, who has asked
        for single messages, and of several of which one is active that one alone. There the number is that of what was asked for."""
        if not self.records or queue not in self.quorum:
            return counted
        return sum(of == queue for channel in self.channels.values() for of, _ in channel.consumers.values())

    def take(self, channel, name, fields):
        if name in ("basic.ack", "basic.nack"):
            self.confirmed(channel, fields["delivery-tag"], fields["multiple"], name == "basic.ack")
        elif name == "channel.close":
            channel.link.method(channel.number, "channel.close-ok")
            self.note_confirms(channel)
            events = channel.events + [f"closed {fields['reply-code']} {fields['class-id']},{fields['method-id']} {self.plain(fields['reply-text'])}"]
            channel.forget()
            channel.open, channel.events, channel.answer = False, events, "closed"
        elif name == "basic.cancel":
            channel.consumers.pop(fields["consumer-tag"], None)
            channel.events.append(f"cancelled {fields['consumer-tag']}")
        elif name.endswith("-ok") or name == "basic.get-empty":
            channel.answer = name + (f" {fields['message-count']}" if "message-count" in fields else "")
        else:
            channel.events.append(f"{name} {fields}")

    def take_message(self, channel, name, fields, _length, properties, body):
        body = body.decode("latin-1")
        about = self.plain(describe(properties))
        where = self.plain(f"{fields['exchange']}/{fields['routing-key']}")
        text = f"{where} {body.split('.')[0]}{about}"
        if name == "basic.return":
            number = next((number for number, sent in channel.published.items() if sent == body), None)
            late = " after its confirm" if number is not None and number not in channel.open_publishes and channel.mode == "confirm" else ""
            channel.events.append(f"returned {fields['reply-code']} {text}{late}")
            return
        tag, again = fields["delivery-tag"], "r" if fields["redelivered"] else ""
        if name == "basic.get-ok":
            if not channel.asked_without_ack:
                channel.unacked.append(tag)
            channel.answer = f"got {tag}{again} {text} {fields['message-count']}"
            return
        consumer = fields["consumer-tag"]
        if not channel.consumers.get(consumer, (None, False))[1]:
            channel.unacked.append(tag)
        channel.events.append(f"{consumer} {tag}{again} {text}")

    def confirmed(self, channel, tag, multiple, kept):
        for number in sorted(channel.open_publishes):
            if number == tag or multiple and (number < tag or tag == 0):
                channel.open_publishes.discard(number)
                channel.outcomes[number] = "+" if kept else "-"

    def note_confirms(self, channel):
        """How the publishes ended, in their order and not in that of the answers."""
        if channel.outcomes:
            channel.events.append("confirms " + " ".join(f"{sign}{channel.published[number].split('.')[0]}" for number,
                                                         sign in sorted(channel.outcomes.items())))
            channel.outcomes = {}

    def plain(self, text):
        return text.replace(self.prefix, "")

    def call(self, channel, name, **values):
        """Sends a method and waits for its answer; `closed`: the channel was."""
        channel.answer = None
        channel.link.method(channel.number, name, **values)
        while channel.answer is None:
            self.receive(channel.link)
        return channel.answer

    # Steps.

    def play(self, operation, expected=None):
        """Carries out an operation; what came of it. `expected`: what another play of it has led to."""
        name, *rest = operation
        answer = None
        try:
            answer = getattr(self, "do_" + name.replace("-", "_"))(*rest)
            seen = self.settle(answer, expected)
        except (Closed, TimeoutError, ConnectionError, AssertionError) as error:
            self.dead = self.dead or self.plain(f"{type(error).__name__} {error}".strip())
            seen = {"answer": answer, "ended": self.dead}
        for channel in self.channels.values():
            channel.events = []
        return seen

    def settle(self, answer, expected):
        """What came of an operation: with nothing to expect, when several rounds have brought nothing new; else when two have brought that."""
        before, rounds, wanted, until = None, 0, ROUNDS if expected is None else 2, time.monotonic() + PATIENCE
        while True:
            self.round()
            seen = self.seen(answer)
            rounds = rounds + 1 if seen == before or before is None else 1
            whole = not any(channel.open_publishes for channel in self.channels.values()) if expected is None else seen == expected
            if rounds >= wanted and whole or time.monotonic() > until:
                return self.closing(seen)
            before = seen
            time.sleep(PAUSE if expected is None else 0.006)

    def closing(self, seen):
        for channel in self.channels.values():
            channel.outcomes = {}
        return seen

    def round(self):
        link = self.links["a"]
        self.counts = {}
        wanted = list(enumerate(self.queues, ASKING))
        for number, queue in wanted:
            if number not in self.asking:
                link.channel_opened = None
                link.method(number, "channel.open")
                self.asking.add(number)
            link.method(number, "queue.declare", queue=self.prefix + queue, passive=True)
        while len(self.counts) < len(wanted):
            self.receive(link)
        called = [channel for channel in self.channels.values() if channel.open]
        for channel in called:
            channel.answer = None
            channel.link.method(channel.number, "basic.qos", prefetch_count=channel.prefetch)
        for channel in called:
            while channel.answer is None:
                self.receive(channel.link)

    def seen(self, answer):
        out = {}
        if answer is not None:
            out["answer"] = answer
        for channel in self.channels.values():
            events = list(channel.events)
            if channel.outcomes:
                events.append("confirms " + " ".join(f"{sign}{channel.published[number].split('.')[0]}" for number,
                                                     sign in sorted(channel.outcomes.items())))
            if events:
                out[channel.name] = events
        out["counts"] = " ".join(self.counts[number] for number, _ in enumerate(self.queues, ASKING))
        return out

    # Operations.

    def do_open(self, name, mode, prefetch):
        channel = self.channels[name]
        self.call(channel, "channel.open")
        channel.forget()
        channel.open, channel.mode = True, mode
        if mode != "plain":
            self.call(channel, {"confirm": "confirm.select", "tx": "tx.select"}[mode])
        self.do_qos(name, prefetch)

    def do_close(self, name):
        channel = self.channels[name]
        answer = self.call(channel, "channel.close", reply_code=200)
        channel.forget()
        channel.open = False
        return answer

    def do_drop(self, connection):
        """Its socket is closed without a word, and another connection made."""
        self.links[connection].close()
        self.connect(connection, [name for name in self.channels if name[0] == connection])

    def do_qos(self, name, prefetch):
        self.channels[name].prefetch = prefetch
        return self.call(self.channels[name], "basic.qos", prefetch_count=prefetch)

    def do_declare(self, name, queue, flags, arguments):
        if queue not in self.queues:
            self.queues.append(queue)
        (self.quorum.add if arguments.get("x-queue-type") == "quorum" else self.quorum.discard)(queue)
        arguments = {key: self.prefix + value[1:] if str(value).startswith("@") else value for key, value in arguments.items()}
        return self.call(self.channels[name], "queue.declare", queue=self.prefix + queue, arguments=arguments, **dict.fromkeys(flags, True))

    def do_exchange(self, name, exchange, kind, arguments):
        if exchange not in self.made:
            self.made.append(exchange)
        arguments = {key: self.prefix + value[1:] if str(value).startswith("@") else value for key, value in arguments.items()}
        return self.call(self.channels[name], "exchange.declare", exchange=self.prefix + exchange, type=kind, durable=True, arguments=arguments)

    def do_bind(self, name, destination, source, key, arguments):
        return self.call(self.channels[name], "queue.bind", queue=self.prefix + destination, exchange=self.prefix + source, routing_key=key,
                         arguments=arguments)

    def do_unbind(self, name, destination, source, key, arguments):
        return self.call(self.channels[name], "queue.unbind", queue=self.prefix + destination, exchange=self.prefix + source, routing_key=key,
                         arguments=arguments)

    def do_bind_exchange(self, name, destination, source, key, arguments):
        return self.call(self.channels[name], "exchange.bind", destination=self.prefix + destination, source=self.prefix + source,
                         routing_key=key, arguments=arguments)

    def do_delete_exchange(self, name, exchange, if_unused):
        return self.call(self.channels[name], "exchange.delete", exchange=self.prefix + exchange, if_unused=if_unused)

    def do_publish(self, name, exchange, key, mandatory, messages, wait=0):
        """All messages in one write; `wait`: ms until what has to expire has."""
        channel, data = self.channels[name], b""
        if exchange == "" and key in self.queues:
            key = self.prefix + key
        exchange = exchange and self.prefix + exchange
        for body, properties in messages:
            data += wire.frame(wire.METHOD, channel.number, wire.method("basic.publish", exchange=exchange, routing_key=key,
                                                                        mandatory=mandatory))
            data += wire.frame(wire.HEADER, channel.number, wire.header(len(body), delivery_mode=2, **properties))
            data += wire.frame(wire.BODY, channel.number, body.encode())
            channel.published[len(channel.published) + 1] = body
            if channel.mode == "confirm":
                channel.open_publishes.add(len(channel.published))
        channel.link.raw(data)
        time.sleep(wait / 1000)

    def do_consume(self, name, queue, tag, no_ack, exclusive, arguments):
        channel = self.channels[name]
        channel.consumers[tag] = queue, no_ack
        answer = self.call(channel, "basic.consume", queue=self.prefix + queue, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive,
                           arguments=arguments)
        if not answer.startswith("basic.consume-ok"):
            channel.consumers.pop(tag, None)
        return answer

    def do_cancel(self, name, tag):
        channel = self.channels[name]
        answer = self.call(channel, "basic.cancel", consumer_tag=tag)
        channel.consumers.pop(tag, None)
        return answer

    def settled(self, name, tag, multiple):
        channel = self.channels[name]
        settled = [one for one in channel.unacked if one == tag or multiple and (one < tag or tag == 0)]
        channel.unacked = [one for one in channel.unacked if one not in settled]
        channel.held += settled if channel.mode == "tx" else []
        return channel.link, channel.number

    def do_ack(self, name, tag, multiple):
        link, number = self.settled(name, tag, multiple)
        link.method(number, "basic.ack", delivery_tag=tag, multiple=multiple)

    def do_nack(self, name, tag, multiple, requeue):
        link, number = self.settled(name, tag, multiple)
        link.method(number, "basic.nack", delivery_tag=tag, multiple=multiple, requeue=requeue)

    def do_reject(self, name, tag, requeue):
        link, number = self.settled(name, tag, False)
        link.method(number, "basic.reject", delivery_tag=tag, requeue=requeue)

    def do_get(self, name, queue, no_ack):
        channel = self.channels[name]
        channel.asked_without_ack = no_ack
        return self.call(channel, "basic.get", queue=self.prefix + queue, no_ack=no_ack)

    def do_recover(self, name):
        self.channels[name].unacked = []
        return self.call(self.channels[name], "basic.recover", requeue=True)

    def do_commit(self, name):
        self.channels[name].held = []
        return self.call(self.channels[name], "tx.commit")

    def do_rollback(self, name):
        channel = self.channels[name]
        channel.unacked, channel.held = sorted(channel.unacked + channel.held), []
        return self.call(channel, "tx.rollback")

    def do_purge(self, name, queue):
        return self.call(self.channels[name], "queue.purge", queue=self.prefix + queue)

    def do_delete(self, name, queue, if_unused, if_empty):
        return self.call(self.channels[name], "queue.delete", queue=self.prefix + queue, if_unused=if_unused, if_empty=if_empty)

    def do_wait(self, _name, ms):
        time.sleep(ms / 1000)

    def end(self):
        """Deletes what was made."""
        for link in self.links.values():
            link.close()
        link = Link(self.address).open()
        link.channel(1)
        for queue in self.queues:
            link.method(1, "queue.delete", queue=self.prefix + queue)
            link.expect("queue.delete-ok")
        for exchange in self.made:
            link.call(1, "exchange.delete", exchange=self.prefix + exchange)
        link.close()


def describe(properties):
    """What a message has beside its body, without times."""
    properties = {name: value for name, value in properties.items() if name != "delivery-mode"}
    for death in properties.get("headers", {}).get("x-death", []):
        death.pop("time", None)
    return "".join(f" {name}={json.dumps(value, sort_keys=True)}" for name, value in sorted(properties.items()))
