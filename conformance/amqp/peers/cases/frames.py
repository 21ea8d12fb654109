"""Frames whose envelope is wrong, or that come on the wrong channel."""

import wire
from . import case, each

UNKNOWN = wire.struct.pack(">HH", 50, 99)
QOS = wire.method("basic.qos")


@each(zero=0, method_again=1, other=0xCF, all_ones=0xFF)
def frame_end(t, end):
    t.frames(f"basic.qos that ends with {end}", wire.frame(wire.METHOD, 1, QOS, end=end))


@each(zero=0, four=4, five=5, seven=7, nine=9, of_text=0x41, all_ones=0xFF)
def frame_type(t, kind):
    t.frames(f"frame of type {kind}", wire.frame(kind, 1, QOS))


@each(by_one=131073, by_much=1 << 24, beyond_what_is_signed=0xFFFFFFFF)
def frame_length_above_the_limit(t, length):
    t.frames(f"header frame that announces {length} bytes", wire.frame(wire.HEADER, 1, b"0" * 16, length=length))


@each(method=wire.METHOD, body=wire.BODY)
def frame_too_large_of_type(t, kind):
    t.frames("16 MiB announced", wire.frame(kind, 1, b"0" * 16, length=1 << 24))


@case
def frame_at_the_limit(t):
    queue, body = t.queue(), b"x" * (131072 - 8)
    head = wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key=queue)) + wire.frame(wire.HEADER, 1, wire.header(len(body)))
    t.frames("body frame of 131064 bytes", head + wire.frame(wire.BODY, 1, body))


@case
def frame_shorter_than_announced(t):
    data = wire.frame(wire.METHOD, 1, QOS)
    t.frames("basic.qos with a length too small", data[:6] + bytes([data[6] - 1]) + data[7:])


@each(nothing=b"", one_byte=b"\0", class_only=b"\0\x32", class_and_half=b"\0\x32\0")
def method_frame_with(t, payload):
    t.frames("method frame", wire.frame(wire.METHOD, 1, payload))


@each(on_a_channel=1, on_a_closed_channel=7, on_the_last_channel=65535)
def heartbeat(t, number):
    t.frames("heartbeat", wire.frame(wire.HEARTBEAT, number, b""))


@case
def heartbeat_with_a_payload(t):
    t.frames("heartbeat of one byte", wire.frame(wire.HEARTBEAT, 0, b"\0"))


@case
def heartbeat_between_method_and_content(t):
    queue = t.queue()
    parts = [wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key=queue)), wire.frame(wire.HEADER, 1, wire.header(2)),
             wire.frame(wire.BODY, 1, b"x"), wire.frame(wire.BODY, 1, b"y")]
    t.frames("message with heartbeats between its frames", wire.frame(wire.HEARTBEAT, 0, b"").join(parts))
    t.send("basic.get", queue=queue, no_ack=True)


@each(header=(wire.HEADER, wire.header(1)), body=(wire.BODY, b"x"))
def content_on_channel_0(t, wanted):
    kind, payload = wanted
    t.frames("content", wire.frame(kind, 0, payload), channel=0)


@each(header=(wire.HEADER, wire.header(1)), body=(wire.BODY, b"x"), declare=(wire.METHOD, wire.method("queue.declare", queue="x")),
      close=(wire.METHOD, wire.method("channel.close", reply_code=200)), close_ok=(wire.METHOD, wire.method("channel.close-ok")),
      flow=(wire.METHOD, wire.method("channel.flow", active=True)), unknown=(wire.METHOD, UNKNOWN),
      connection=(wire.METHOD, wire.method("connection.open")))
def channel_that_is_not_open(t, wanted):
    kind, payload = wanted
    t.frames("frame", wire.frame(kind, 7, payload), channel=7, expect=1)


@each(declare=wire.method("queue.declare", queue="x"), open=wire.method("channel.open"), close=wire.method("channel.close"),
      close_ok=wire.method("channel.close-ok"), publish=wire.method("basic.publish"), qos=QOS, select=wire.method("tx.select"),
      unknown=UNKNOWN)
def channel_0(t, payload):
    t.frames("method", wire.frame(wire.METHOD, 0, payload), channel=0)


@each(open=wire.method("connection.open", virtual_host="/"), close=wire.method("connection.close", reply_code=200),
      close_ok=wire.method("connection.close-ok"), start_ok=wire.method("connection.start-ok"), tune_ok=wire.method("connection.tune-ok"))
def connection_method_on_a_channel(t, payload):
    t.frames("method", wire.frame(wire.METHOD, 1, payload))
