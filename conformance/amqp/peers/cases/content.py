"""Messages whose frames do not fit each other, and properties that cannot be read."""

import wire
from client import publish
from wire import Raw
from . import case, each


def frames(*parts, queue="peer-nowhere"):
    """`publish`, `header N`, `body TEXT` as frames of channel 1."""
    out = b""
    for part in parts:
        what, _, value = part.partition(" ")
        if what == "publish":
            out += wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key=queue))
        elif what == "header":
            out += wire.frame(wire.HEADER, 1, wire.header(int(value)))
        else:
            out += wire.frame(wire.BODY, 1, value.encode())
    return out


@each(header_first=["header 1"], body_first=["body x"], body_without_a_header=["publish", "body x"],
      header_twice=["publish", "header 1", "header 1"], publish_twice=["publish", "publish"],
      publish_within_a_body=["publish", "header 2", "body x", "publish"],
      header_within_a_body=["publish", "header 2", "body x", "header 1"], body_longer_than_announced=["publish", "header 1", "body xy"],
      second_body_longer_than_announced=["publish", "header 3", "body xy", "body zz"],
      body_of_an_empty_message=["publish", "header 0", "body x"], more_body_behind_the_end=["publish", "header 1", "body x", "body y"],
      header_behind_the_end=["publish", "header 1", "body x", "header 1"])
def content(t, parts):
    t.frames(" ".join(parts), frames(*parts))


@each(header=["publish"], body=["publish", "header 1"], rest_of_the_body=["publish", "header 2", "body x"])
def method_instead_of_the(t, parts):
    data = frames(*parts) + wire.frame(wire.METHOD, 1, wire.method("queue.declare", queue="peer-not-declared"))
    t.frames(" ".join([*parts, "queue.declare"]), data)


@case
def close_instead_of_the_body(t):
    data = frames("publish", "header 1") + wire.frame(wire.METHOD, 1, wire.method("channel.close", reply_code=200))
    t.frames("publish header channel.close", data, expect=1)


@case
def connection_close_within_a_body(t):
    data = frames("publish", "header 2", "body x") + wire.frame(wire.METHOD, 0, wire.method("connection.close", reply_code=200))
    t.frames("publish header body connection.close", data, channel=0, expect=1)


@case
def content_of_two_channels_mixed(t):
    queue = t.queue()
    t.link.channel(2)
    parts = [[wire.frame(wire.METHOD, number, wire.method("basic.publish", routing_key=queue)),
              wire.frame(wire.HEADER, number, wire.header(2)),
              wire.frame(wire.BODY, number, b"x"), wire.frame(wire.BODY, number, b"y")] for number in (1, 2)]
    t.frames("two messages, frame by frame", b"".join(one + other for one, other in zip(*parts)))
    t.send("basic.qos", channel=2)
    t.send("basic.get", queue=queue, no_ack=True)
    t.send("basic.get", queue=queue, no_ack=True)


@case
def body_frames_that_are_empty(t):
    queue = t.queue()
    t.frames("empty body frames before a body", frames("publish", "header 1", "body ", "body ", "body x", queue=queue))
    t.send("basic.get", queue=queue, no_ack=True)


@case
def body_frame_of_an_empty_message_that_is_empty(t):
    t.frames("publish header 0 and an empty body frame", frames("publish", "header 0", "body "))


def with_header(t, payload, what="header"):
    """A message with that header; whatever ends it."""
    head = wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key="peer-nowhere"))
    t.frames(what, head + wire.frame(wire.HEADER, 1, payload))


@each(of_queues=50, of_connections=10, unknown=80, zero=0)
def header_of_a_class(t, class_id):
    with_header(t, wire.header(0, class_id))


@case
def header_with_a_weight(t):
    queue = t.queue()
    head = wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key=queue))
    t.frames("header of weight 1", head + wire.frame(wire.HEADER, 1, wire.header(0, weight=1)))


@each(of_17_mib=17 << 20, beyond_what_is_signed=(1 << 64) - 1)
def body_announced(t, length):
    head = wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key="peer-nowhere"))
    t.frames(f"header of a body of {length} bytes", head + wire.frame(wire.HEADER, 1, wire.header(length)), probe=99)
    t.send("basic.qos")


@each(at_the_limit=16 << 20, above_the_limit=(16 << 20) + 1)
def body(t, length):
    part, data = b"x" * (131072 - 8), wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key="peer-nowhere"))
    data += wire.frame(wire.HEADER, 1, wire.header(length)) + wire.frame(wire.BODY, 1, part) * (length // len(part))
    t.frames(f"message of {length} bytes", data + wire.frame(wire.BODY, 1, part[:length % len(part)]))


@each(without_flags=wire.header(0)[:-2], without_a_length=wire.header(0)[:4], empty=b"", with_half_its_flags=wire.header(0)[:-1])
def header(t, payload):
    with_header(t, payload)


@case
def header_with_bytes_behind(t):
    with_header(t, wire.header(0) + b"\0")


@case
def header_with_more_flags(t):
    """The lowest bit says that another word of flags follows."""
    with_header(t, wire.header(0)[:-2] + b"\0\1\0\0")


@case
def header_with_a_flag_that_has_no_meaning(t):
    with_header(t, wire.header(0)[:-2] + b"\0\2")


@each(**{name.replace("-", "_"): name for name in wire.PROPERTIES})
def property_cut(t, name):
    """The flag is there, and the value ends early."""
    flags = 1 << (15 - list(wire.PROPERTIES).index(name))
    part = {"shortstr": b"\5ab", "table": b"\0\0\0\5\1a", "octet": b"", "longlong": b"\0\0\0"}[wire.PROPERTIES[name]]
    with_header(t, wire.header(0)[:-2] + wire.struct.pack(">H", flags) + part)


@each(unknown_type=Raw(wire.longstr(b"\1aZ\0")), half_a_value=Raw(wire.longstr(b"\1aI\0")), half_a_name=Raw(wire.longstr(b"\5a")),
      string_beyond=Raw(wire.longstr(b"\1aS\0\0\0\x09ab")), too_long=Raw(b"\0\0\0\xff\1aI\0\0\0\1"), far_too_long=Raw(b"\xff\xff\xff\xff"))
def headers_with(t, headers):
    with_header(t, wire.header(0, headers=headers))


@each(delivery_mode=("delivery_mode", 7), delivery_mode_0=("delivery_mode", 0), priority=("priority", 255),
      not_utf_8=("message_id", b"\xff\xfe"), cluster_id=("cluster_id", "anything"), timestamp=("timestamp", (1 << 64) - 1),
      type=("type", "t" * 255))
def property_unusual(t, wanted):
    name, value = wanted
    queue = t.queue()
    t.frames("message", publish(1, b"x", {name: value}, routing_key=queue))
    t.send("basic.get", queue=queue, no_ack=True)
