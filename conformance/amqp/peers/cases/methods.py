"""Methods that are unknown, of the wrong side, too short, too long, or whose fields cannot be read."""

import wire
from wire import Raw
from . import case, each


def ids(class_id, method_id, arguments=b""):
    return wire.frame(wire.METHOD, 1, wire.struct.pack(">HH", class_id, method_id) + arguments)


@each(class_0=(0, 0), class_70=(70, 10), class_65535=(65535, 65535), of_connection=(10, 99), of_channel=(20, 99), of_access=(30, 99),
      of_exchange=(40, 99), of_queue=(50, 99), of_basic=(60, 99), of_confirm=(85, 99), of_tx=(90, 99), resume_of_0_9=(20, 50),
      file=(70, 10), basic_recover_of_0_10=(60, 102))
def method_unknown(t, wanted):
    t.frames(f"method {wanted}", ids(*wanted))


SERVER = ["channel.open-ok", "access.request-ok", "exchange.declare-ok", "exchange.delete-ok", "exchange.bind-ok", "exchange.unbind-ok",
          "queue.declare-ok",
          "queue.bind-ok", "queue.purge-ok", "queue.delete-ok", "queue.unbind-ok", "basic.qos-ok", "basic.consume-ok", "basic.get-ok",
          "basic.get-empty",
          "basic.recover-ok", "confirm.select-ok", "tx.select-ok", "tx.commit-ok", "tx.rollback-ok"]


@each(**{name.replace(".", "_").replace("-", "_"): name for name in SERVER})
def method_of_the_server(t, name):
    t.send(name)


@each(deliver="basic.deliver", return_of="basic.return")
def content_of_the_server(t, name):
    t.send(name, content=({}, b"x"))


@case
def basic_cancel_ok_of_nobody(t):
    t.send("basic.cancel-ok", consumer_tag="nobody")


@case
def channel_flow_ok_without_flow(t):
    t.send("channel.flow-ok", active=True)


@each(queue_declare="queue.declare", exchange_declare="exchange.declare", queue_bind="queue.bind", basic_qos="basic.qos",
      basic_consume="basic.consume", basic_ack="basic.ack", basic_publish="basic.publish", channel_flow="channel.flow",
      tx_select="tx.select")
def arguments_too_long(t, name):
    t.frames(f"{name} and a byte more", wire.frame(wire.METHOD, 1, wire.method(name) + b"\0"))


@each(queue_declare="queue.declare", exchange_declare="exchange.declare", queue_bind="queue.bind", basic_qos="basic.qos",
      basic_get="basic.get", basic_consume="basic.consume", basic_ack="basic.ack", basic_publish="basic.publish",
      channel_flow="channel.flow")
def arguments_too_short(t, name):
    t.frames(f"{name} but for a byte", wire.frame(wire.METHOD, 1, wire.method(name)[:-1]))


@case
def arguments_left_out(t):
    t.frames("queue.declare without fields", ids(50, 10))


@case
def connection_arguments_too_short(t):
    t.frames("connection.close but for a byte", wire.frame(wire.METHOD, 0, wire.method("connection.close")[:-1]), channel=0)


def declare(t, arguments):
    t.send("queue.declare", queue="peer-not-declared", durable=True, arguments=arguments)


@each(beyond_the_frame=Raw(b"\0\0\0\x09\1aI\0\0\0\1"), far_beyond_the_frame=Raw(b"\xff\xff\xff\xff"),
      that_ends_in_a_name=Raw(wire.longstr(b"\5ab")), that_ends_in_a_value=Raw(wire.longstr(b"\1aI\0\0")),
      without_a_value=Raw(wire.longstr(b"\1a")), with_an_unknown_type=Raw(wire.longstr(b"\1aZ\0\0\0\0")),
      with_a_type_of_0_8=Raw(wire.longstr(b"\1aU\0\0")), with_a_string_beyond_it=Raw(wire.longstr(b"\1aS\0\0\0\x09ab")),
      with_a_table_beyond_it=Raw(wire.longstr(b"\1aF\0\0\0\x09\1b")), with_an_array_beyond_it=Raw(wire.longstr(b"\1aA\0\0\0\x09I\0")),
      with_an_array_of_half_a_value=Raw(wire.longstr(b"\1aA\0\0\0\3I\0\0")), with_half_a_decimal=Raw(wire.longstr(b"\1aD\2\0\0")),
      with_a_nested_unknown_type=Raw(wire.longstr(b"\1aF\0\0\0\3\1bZ")))
def table(t, arguments):
    declare(t, arguments)


@case
def table_of_every_type(t):
    values = {"b": Raw(b"b\xff"), "B": Raw(b"B\xff"), "s": Raw(b"s\xff\xff"), "u": Raw(b"u\xff\xff"), "I": -1,
              "i": Raw(b"i\xff\xff\xff\xff"), "l": -1 << 40,
              "f": Raw(b"f\x3f\x80\0\0"), "d": 1.5, "D": Raw(b"D\2\0\0\0\7"), "T": Raw(b"T" + b"\0" * 7 + b"\1"), "S": "text",
              "x": b"\xff", "t": True, "V": None,
              "A": [1, "two", [3]], "F": {"in": {"ner": 1}}}
    t.send("queue.declare", queue=t.unique("queue"), durable=True, arguments=values)


@case
def table_with_a_name_twice(t):
    pair = wire.shortstr("x-max-length") + b"I" + wire.struct.pack(">i", 5)
    queue = t.unique("queue")
    t.send("queue.declare", queue=queue, durable=True, arguments=Raw(wire.longstr(pair + pair)))
    t.send("queue.declare", queue=queue, durable=True, arguments={"x-max-length": 5})


@case
def table_nested_deeply(t):
    inner = b""
    for _ in range(2000):
        inner = b"\1aF" + wire.longstr(inner)
    t.send("queue.declare", queue=t.unique("queue"), durable=True, arguments=Raw(wire.longstr(inner)))


@case
def name_longer_than_its_method(t):
    t.frames("queue.declare with a name of 200 announced bytes", ids(50, 10, b"\0\0\xc8abc"))


@each(queue=("queue.declare", "queue"), exchange=("exchange.declare", "exchange"))
def name_not_utf_8(t, wanted):
    method, field = wanted
    t.send(method, **{field: b"peer-\xff\xfe", "passive": True})


@case
def bits_that_have_no_meaning(t):
    queue = t.unique("queue")
    data = wire.method("queue.declare", queue=queue, durable=True)
    at = len(data) - 5
    t.frames("queue.declare with all upper bits set", wire.frame(wire.METHOD, 1, data[:at] + bytes([data[at] | 0xE0]) + data[at + 1:]))


@case
def access_request(t):
    t.send("access.request", realm="/data", active=True)


@each(of_access=30, not_zero=65535)
def ticket(t, number):
    t.send("queue.declare", ticket=number, exclusive=True)
