"""Delayed messages with pika: exchanges of type x-delayed-message as RabbitMQ's plugin has them, under kills and while the wall clock is set.
Argument: the binary. Prints a line a case, `ok NAME` or `FAIL NAME: why`. The wall clock of the broker's process is set by a library that is
loaded into it; the machine's is left alone."""

import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from driver.broker import Broker

SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
/* The wall clock is as many seconds off as the file named by SHIFT_FILE says. */
int clock_gettime(clockid_t id, struct timespec *out) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(id, out);
  if (id == CLOCK_REALTIME && status == 0) {
    char text[32] = {0};
    int file = open(getenv("SHIFT_FILE"), O_RDONLY);
    if (file >= 0) { if (read(file, text, 31) > 0) out->tv_sec += atol(text); close(file); }
  }
  return status;
}
"""
LATE_S = 1.0


class Session:
    def __init__(self, broker):
        host, port = broker.amqp.rsplit(":", 1)
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def fabric(self, name, kind="direct", keys=("",), durable=True):
        """A delayed exchange and a queue of that name."""
        self.channel.exchange_declare(name, "x-delayed-message", durable=durable, arguments={"x-delayed-type": kind})
        self.channel.queue_declare(name, durable=True)
        for key in keys:
            self.channel.queue_bind(name, name, key)

    def publish(self, exchange, body, delay, key="", channel=None, **more):
        """When it was sent."""
        at = time.monotonic()
        properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay, **more})
        (channel or self.channel).basic_publish(exchange, key, body if isinstance(body, bytes) else str(body).encode(), properties)
        return at

    def take(self, queue, count, wait=8):
        """So many messages, with when each came."""
        got, until = [], time.monotonic() + wait
        take = lambda _c, _m, properties, body: got.append((time.monotonic(), body, properties.headers))
        tag = self.channel.basic_consume(queue, take, auto_ack=True)
        while len(got) < count and time.monotonic() < until:
            self.connection.process_data_events(0.05)
        self.channel.basic_cancel(tag)
        assert len(got) == count, f"{len(got)} of {count} messages"
        return got

    def is_empty(self, queue):
        return self.channel.queue_declare(queue, passive=True).method.message_count == 0


def on_time(sent, got, slack=LATE_S):
    """sent: body to (when, delay in ms)."""
    for at, body, _headers in got:
        when, delay = sent[body]
        late = at - when - delay / 1000
        assert -0.0005 <= late <= slack, f"{body} of {delay} ms came {late:.3f} s late"


def order_is_that_of_the_delays(session, _broker):
    session.fabric("order")
    sent = {}
    for delay in (500, 100, 300, 200, 101, 400, 0, -50):
        body = str(delay).encode()
        sent[body] = (session.publish("order", body, delay), max(delay, 0))
    got = session.take("order", 8)
    assert sorted(int(body) for _, body, _ in got) == [int(body) for _, body, _ in sorted(got, key=lambda one: int(one[1]))]
    assert [int(body) for _, body, _ in got[2:]] == [100, 101, 200, 300, 400, 500], got
    on_time(sent, got, 0.3)
    assert all(headers["x-delay"] == -int(body) for _, body, headers in got[2:]), "the header says how long it was delayed"


def delays_are_numbers_in_any_form(session, _broker):
    session.fabric("forms")
    channel = session.connection.channel()
    channel.confirm_delivery()
    for delay in ("300", 2**32, None, "", True):
        session.publish("forms", repr(delay), delay, channel=channel)
    at = time.monotonic()
    got = session.take("forms", 5)
    assert [body for _, body, _ in got][-1] == b"'300'" and 0.2 <= got[-1][0] - at <= 1, got


def routing_waits_until_then(session, _broker):
    session.fabric("topics", "topic", ["a.*.c"])
    session.channel.exchange_declare("before", "fanout")
    session.channel.exchange_bind("topics", "before")
    session.publish("before", "kept", 300, "a.b.c", CC=["other"])
    session.publish("topics", "dropped", 300, "b.b.c")
    session.publish("topics", "copied", 300, "b.b.c", BCC=["a.x.c"])
    session.channel.queue_declare("late", durable=True)
    session.channel.queue_bind("late", "topics", "b.#")
    assert {body for _, body, _ in session.take("topics", 2)} == {b"kept", b"copied"}
    late = session.take("late", 2)
    assert [body for _, body, _ in late] == [b"dropped", b"copied"], "bindings of that time count"
    assert "BCC" not in late[1][2]


def mandatory_is_returned_and_yet_delayed(session, _broker):
    session.fabric("wanted")
    channel, returned = session.connection.channel(), []
    channel.add_on_return_callback(lambda _c, method, _p, body: returned.append((method.reply_code, body)))
    properties = pika.BasicProperties(headers={"x-delay": 200})
    channel.basic_publish("wanted", "", b"back", properties, mandatory=True)
    assert session.take("wanted", 1)[0][1] == b"back" and returned == [(312, b"back")], returned


def transactions_delay_from_their_commit_on(session, _broker):
    session.fabric("bundle")
    channel = session.connection.channel()
    channel.tx_select()
    session.publish("bundle", "one", 300, channel=channel)
    time.sleep(0.4)
    at = time.monotonic()
    channel.tx_commit()
    got = session.take("bundle", 1)
    assert 0.299 <= got[0][0] - at <= 1.3, got[0][0] - at


def a_deleted_exchange_drops_what_it_has(session, _broker):
    session.fabric("gone")
    session.publish("gone", "never", 300)
    session.channel.exchange_delete("gone")
    session.fabric("gone")
    time.sleep(0.6)
    assert session.is_empty("gone")


def wrong_declarations_are_refused(session, _broker):
    for arguments, text in [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": 5}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x-delayed-type": "x-delayed-message"}, "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"),
        ({"x-delayed-type": "nonsense"}, "invalid exchange type 'nonsense'"),
    ]:
        channel = session.connection.channel()
        try:
            channel.exchange_declare("wrong", "x-delayed-message", arguments=arguments)
            raise AssertionError(f"taken: {arguments}")
        except pika.exceptions.ChannelClosedByBroker as closed:
            assert closed.reply_code == 406 and text in closed.reply_text, closed.reply_text


def kills_lose_nothing(session, broker):
    """A broker that is killed while messages come and go: each is there in time, none early, and those whose time came meanwhile at once."""
    session.fabric("killed")
    sent = {}
    for number in range(400):
        delay = 200 + (number * 7919) % 4000
        sent[str(number).encode()] = (session.publish("killed", number, delay), delay)
    got = []
    for _ in range(2):
        time.sleep(0.7)
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait()
        broker.log.close()
        broker.start(broker.prefix)
    ready = time.monotonic()
    session = Session(broker)
    got = session.take("killed", 400, 10)
    assert {body for _, body, _ in got} == set(sent)
    for at, body, _headers in got:
        when, delay = sent[body]
        due = when + delay / 1000
        assert at >= due - 0.0005 and at <= max(due, ready) + LATE_S, f"{body} {at - due:.3f} s late"


def the_wall_clock_does_not_matter(session, broker):
    session.fabric("clock")
    sent = {}
    for step, hours in enumerate((1, -1)):
        sent[b"%d" % step] = (session.publish("clock", step, 1500), 1500)
        broker.shift.write_text(str(hours * 3600))
        time.sleep(0.2)
        sent[b"%d" % (step + 10)] = (session.publish("clock", step + 10, 1200), 1200)
    on_time(sent, session.take("clock", 4, 6))
    # Nor does it when it is set while nobody is there.
    sent[b"last"] = (session.publish("clock", b"last", 1500), 1500)
    broker.process.send_signal(signal.SIGKILL)
    broker.process.wait()
    broker.log.close()
    broker.shift.write_text("3600")
    broker.start(broker.prefix)
    on_time(sent, Session(broker).take("clock", 1, 6))


CASES = [order_is_that_of_the_delays, delays_are_numbers_in_any_form, routing_waits_until_then, mandatory_is_returned_and_yet_delayed,
         transactions_delay_from_their_commit_on, a_deleted_exchange_drops_what_it_has, wrong_declarations_are_refused, kills_lose_nothing,
         the_wall_clock_does_not_matter]


def shifting(folder):
    """The library that sets the wall clock of a process."""
    source, library = Path(folder, "shift.c"), Path(folder, "shift.so")
    source.write_text(SHIFT)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def main():
    with tempfile.TemporaryDirectory(prefix="mainstem-delayed-") as scratch:
        broker = Broker(sys.argv[1], f"{scratch}/data")
        broker.shift = Path(scratch, "shift")
        broker.shift.write_text("0")
        broker.prefix = ["env", f"LD_PRELOAD={shifting(scratch)}", f"SHIFT_FILE={broker.shift}"]
        broker.start(broker.prefix)
        try:
            for run in CASES:
                name = run.__name__.replace("_", "-")
                try:
                    run(Session(broker), broker)
                    print(f"ok {name}", flush=True)
                except Exception as error:
                    at = traceback.extract_tb(sys.exc_info()[2])[-1]
                    print(f"FAIL {name}: {type(error).__name__} {error} ({at.name}:{at.lineno})".replace("\n", " "), flush=True)
        finally:
            status = broker.end(signal.SIGTERM)
        print("ok the-broker-ends" if status == 0 else f"FAIL the-broker-ends: status {status}")


if __name__ == "__main__":
    main()
