"""Greeting, login, tuning, virtual hosts."""

import wire
from . import case, each

PLAIN = "\0guest\0guest"


def answered(t, what, data, expect=1):
    t.frames(what, data, channel=0, expect=expect)


def connection(name, **values):
    return wire.frame(wire.METHOD, 0, wire.method(f"connection.{name}", **values))


def login(t, **start):
    """A login that is refused: whatever comes instead of connection.tune, up to the end of the connection."""
    start = {"client_properties": {"capabilities": {"authentication_failure_close": True}}, "mechanism": "PLAIN", "response": PLAIN,
             "locale": "en_US", **start}
    t.fresh().raw(wire.GREETING)
    t.link.expect("connection.start")
    answered(t, "connection.start-ok", connection("start-ok", **start), expect=1)


def opening(t, what, tune_ok, virtual_host="/"):
    """Tuning and opening that are refused."""
    t.fresh().start()
    t.link.expect("connection.tune")
    data = tune_ok if isinstance(tune_ok, bytes) else connection("tune-ok", **tune_ok)
    answered(t, what, data + connection("open", virtual_host=virtual_host), expect=1)


@case
def start_of_the_server(t):
    t.fresh().raw(wire.GREETING)
    fields = t.link.expect("connection.start")
    t.note(version=[fields["version-major"], fields["version-minor"]], locales=fields["locales"],
           mechanisms=sorted(fields["mechanisms"].split(" ")), capabilities=fields["server-properties"]["capabilities"])


@case
def tune_of_the_server(t):
    t.fresh().start()
    t.note(tune=t.link.expect("connection.tune"))


@each(of_another_protocol=b"HELO\0\0\0\0", of_http=b"GET / HTTP/1.1\r\n\r\n", of_version_0_8=b"AMQP\1\1\x08\0",
      of_version_0_10=b"AMQP\1\1\0\x0a", of_version_1_0=b"AMQP\0\1\0\0", of_sasl=b"AMQP\3\1\0\0", of_revision_2=b"AMQP\0\0\x09\2",
      of_revision_0=b"AMQP\0\0\x09\0")
def greeting(t, data):
    t.fresh()
    answered(t, repr(data), data, expect=1)


@case
def greeting_of_version_0_9(t):
    t.fresh()
    answered(t, "AMQP 1 1 0 9", b"AMQP\1\1\0\x09")


@case
def frame_instead_of_a_greeting(t):
    t.fresh()
    answered(t, "heartbeat", wire.frame(wire.HEARTBEAT, 0, b""), expect=1)


@each(with_a_wrong_password="\0guest\0wrong", with_an_unknown_name="\0nobody\0guest", with_nothing="", without_zeros="guest",
      with_one_zero="\0guest", with_an_identity="guest\0guest\0guest", with_an_empty_password="\0guest\0", with_an_empty_name="\0\0guest",
      with_more_zeros="\0guest\0guest\0more")
def login_plain(t, response):
    login(t, response=response)


@case
def login_refused_without_the_capability(t):
    login(t, client_properties={}, response="\0guest\0wrong")


@case
def login_refused_with_the_capability_off(t):
    login(t, client_properties={"capabilities": {"authentication_failure_close": False}}, response="\0guest\0wrong")


@each(nobody_knows="FOO", empty="", in_small_letters="plain", with_a_certificate="EXTERNAL", in_two_rounds="RABBIT-CR-DEMO")
def login_with_a_mechanism(t, mechanism):
    login(t, mechanism=mechanism)


def amqplain(**fields):
    """A table without its length."""
    return wire.table({name.upper(): value for name, value in fields.items()})[4:]


@each(wrong_password=amqplain(login="guest", password="wrong"), no_password=amqplain(login="guest"), no_table=b"xx",
      number_for_a_password=amqplain(login="guest", password=7), nothing=b"")
def login_amqplain_with(t, response):
    login(t, mechanism="AMQPLAIN", response=response)


@case
def login_amqplain(t):
    t.connect(mechanism="AMQPLAIN", response=amqplain(login="guest", password="guest"))
    t.send("basic.qos")


@case
def capabilities_that_are_no_table(t):
    login(t, client_properties={"capabilities": "all"}, response="\0guest\0wrong")


@each(frame_below=dict(channel_max=2047, frame_max=8191), frame_far_below=dict(channel_max=2047, frame_max=100),
      frame_above=dict(channel_max=2047, frame_max=131073), frame_without_limit=dict(channel_max=2047, frame_max=0),
      channels_above=dict(channel_max=2048, frame_max=131072), channels_without_limit=dict(channel_max=0, frame_max=131072))
def tune_ok(t, values):
    opening(t, "connection.tune-ok connection.open", values)


@each(at_least=dict(channel_max=1, frame_max=8192), at_most=dict(channel_max=2047, frame_max=131072, heartbeat=0xFFFF))
def tune_ok_within(t, values):
    t.fresh().start()
    t.link.expect("connection.tune")
    answered(t, "connection.tune-ok connection.open", connection("tune-ok", **values) + connection("open", virtual_host="/"))


@case
def tune_ok_left_out(t):
    opening(t, "connection.open", b"")


@each(unknown="nowhere", empty="", with_a_slash="/nowhere", not_utf_8=b"\xff\xfe")
def virtual_host(t, name):
    opening(t, "connection.tune-ok connection.open", dict(channel_max=2047, frame_max=131072), name)


@each(open=connection("open", virtual_host="/"), tune_ok=connection("tune-ok", channel_max=9, frame_max=9000),
      close=connection("close", reply_code=200), heartbeat=wire.frame(wire.HEARTBEAT, 0, b""),
      channel_open=wire.frame(wire.METHOD, 1, wire.method("channel.open")), body=wire.frame(wire.BODY, 0, b"x"),
      queue_declare_on_a_channel=wire.frame(wire.METHOD, 1, wire.method("queue.declare")))
def before_the_login(t, data):
    t.fresh().raw(wire.GREETING)
    t.link.expect("connection.start")
    answered(t, "instead of connection.start-ok", data, expect=1)


@each(channel_open=wire.frame(wire.METHOD, 1, wire.method("channel.open")),
      start_ok=connection("start-ok", response=PLAIN, mechanism="PLAIN"), declare=wire.frame(wire.METHOD, 1, wire.method("queue.declare")),
      tune_ok=connection("tune-ok", channel_max=9, frame_max=9000))
def before_open(t, data):
    t.fresh().start()
    t.link.expect("connection.tune")
    t.link.raw(connection("tune-ok", channel_max=2047, frame_max=131072))
    answered(t, "instead of connection.open", data, expect=1)


@each(open=("open", dict(virtual_host="/")), start_ok=("start-ok", dict(mechanism="PLAIN", response=PLAIN)), secure_ok=("secure-ok", {}),
      tune_ok=("tune-ok", dict(channel_max=10, frame_max=8192)), start=("start", {}), tune=("tune", {}), open_ok=("open-ok", {}),
      secure=("secure", {}), blocked=("blocked", {}), update_secret_ok=("update-secret-ok", {}))
def connection_method_once_open(t, wanted):
    name, values = wanted
    t.send(f"connection.{name}", channel=0, **values)


@case
def update_secret_of_a_login_with_a_password(t):
    t.send("connection.update-secret", channel=0, new_secret="x", reason="y", expect=1)


@case
def connection_close_of_the_client(t):
    t.send("connection.close", channel=0, reply_code=200, reply_text="bye", expect=1)


@case
def connection_close_ok_without_a_close(t):
    t.send("connection.close-ok", channel=0)


@case
def what_comes_behind_connection_close(t):
    queue = t.unique("queue")
    late = wire.frame(wire.METHOD, 1, wire.method("queue.declare", queue=queue, durable=True))
    t.frames("connection.close queue.declare", connection("close", reply_code=200) + late, channel=0, expect=1)
    other = t.another()
    other.method(1, "queue.declare", queue=queue, passive=True)
    t.note(late=t.normal(str(wire.decode(other.receive()[2]))))


@case
def channels_up_to_the_limit(t):
    t.fresh().open(channel_max=3)
    for number in (1, 2, 3):
        t.send("channel.open", channel=number, expect=1)
    t.send("channel.open", channel=4, expect=1)


@each(above_the_limit=11, far_above_the_limit=65535)
def channel_number(t, number):
    t.fresh().open(channel_max=10)
    t.send("channel.open", channel=number, expect=1)


@case
def frames_larger_than_tuned(t):
    t.fresh().open(frame_max=8192)
    t.link.channel(1)
    t.frames("header frame of 8193 bytes", wire.frame(wire.HEADER, 1, b"x" * 8193), expect=1)
