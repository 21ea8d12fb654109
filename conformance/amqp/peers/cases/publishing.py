"""Flags and properties of messages that are refused, returned or passed over."""

from client import publish
from wire import Field
from . import add, case, each


@case
def publish_immediate(t):
    t.send("basic.publish", routing_key="x", immediate=True, content=({}, b"x"))


@case
def publish_mandatory_to_nobody(t):
    t.send("basic.publish", routing_key="peer-nowhere", mandatory=True, content=({"message_id": "m"}, b"x"))


@case
def publish_mandatory_and_empty_to_nobody(t):
    t.send("basic.publish", routing_key="peer-nowhere", mandatory=True, content=({}, b""))


@case
def publish_to_nobody(t):
    t.send("basic.publish", routing_key="peer-nowhere", content=({}, b"x"))


@case
def publish_mandatory_to_a_headers_exchange(t):
    t.send("basic.publish", exchange="amq.headers", routing_key="x", mandatory=True, content=({}, b"x"))


@each(of_another="nobody", empty="", of_the_login="guest")
def user_id(t, name):
    t.send("basic.publish", routing_key="peer-nowhere", content=({"user_id": name}, b"x"))


EXPIRATIONS = {"letters": "abc", "negative": "-1", "empty": "", "number-and-letter": "12x", "fraction": "1.5",
               "far-too-large": "99999999999999999999",
               "above": "315360000001", "at-most": "315360000000", "beyond-32-bits": "4294967296", "zero": "0", "with-a-plus": "+5",
               "with-a-space": " 5",
               "with-zeros": "0005", "hexadecimal": "0x10", "not-utf-8": b"\xff"}
for _label, _value in EXPIRATIONS.items():
    add(f"expiration-{_label}",
        lambda t, value=_value: t.send("basic.publish", routing_key="peer-nowhere", content=({"expiration": value}, b"x")))


@each(text="abc", number=1, list_of_numbers=[1], list=["a"], nothing=None, table={"a": "b"}, list_of_both=["a", 1])
def header_cc(t, value):
    t.send("basic.publish", routing_key="peer-nowhere", content=({"headers": {"CC": value}}, b"x"))


@each(text="abc", list_of_numbers=[1])
def header_bcc(t, value):
    t.send("basic.publish", routing_key="peer-nowhere", content=({"headers": {"BCC": value}}, b"x"))


@case
def header_cc_reaches_queues(t):
    queue = t.queue()
    t.send("basic.publish", routing_key="peer-nowhere", mandatory=True, content=({"headers": {"CC": [queue]}}, b"x"))
    t.send("basic.get", queue=queue, no_ack=True)


@each(negative=-1, text="x", number=Field(("I", 5)))
def header_x_delay(t, value):
    t.send("basic.publish", routing_key="peer-nowhere", content=({"headers": {"x-delay": value}}, b"x"))


@case
def publish_to_the_default_exchange_by_an_empty_key(t):
    t.send("basic.publish", mandatory=True, content=({}, b"x"))


@case
def publish_with_a_ticket(t):
    t.send("basic.publish", ticket=7, routing_key="peer-nowhere", content=({}, b"x"))


@case
def publish_to_a_full_queue(t):
    queue = t.queue({"x-max-length": 1, "x-overflow": "reject-publish"}, messages=[b"one"])
    t.link.call(1, "confirm.select")
    t.send("basic.publish", routing_key=queue, content=({}, b"two"), expect=1)


@case
def publish_to_nobody_with_confirms(t):
    t.link.call(1, "confirm.select")
    t.send("basic.publish", routing_key="peer-nowhere", mandatory=True, content=({}, b"x"), expect=2)


@case
def publish_to_no_exchange_with_confirms(t):
    t.link.call(1, "confirm.select")
    t.send("basic.publish", exchange="peer-nowhere", content=({}, b"x"))


@case
def publish_to_no_exchange_and_go_on(t):
    """What comes behind the refused message, before the channel's end is answered, is passed over."""
    queue = t.queue()
    data = publish(1, b"a", exchange="peer-nowhere") + publish(1, b"b", routing_key=queue) * 2
    t.frames("three messages, the first to no exchange", data)
    t.link.channel(1)
    t.send("queue.declare", queue=queue, passive=True)
