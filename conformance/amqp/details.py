"""What the test suites of RabbitMQ's clients rely on beyond `cases.py`, with pika; arguments and output as those of `cases.py`. Of a real
RabbitMQ `a-random-exchange` needs a plugin."""

import collections
import socket
import time

import cases
import pika
from cases import case
from pika.exceptions import ChannelClosedByBroker

cases.CASES.clear()


def spread(session, kind, keys):
    """Which queues of four get messages with these keys."""
    exchange = session.name()
    session.channel.exchange_declare(exchange, kind, durable=True)
    queues = [session.queue() for _ in range(4)]
    for queue in queues:
        session.channel.queue_bind(queue, exchange, routing_key="")
    session.channel.confirm_delivery()
    for key in keys:
        session.channel.basic_publish(exchange, key, key.encode(), mandatory=True)
    got = {queue: [body.decode() for body in session.drain(queue, session.counts(queue)[0])] for queue in queues}
    session.channel.exchange_delete(exchange)
    assert sorted(sum(got.values(), [])) == sorted(keys), got
    return got


@case
def a_random_exchange(session):
    got = spread(session, "x-random", [f"key {number}" for number in range(200)])
    assert all(20 < len(bodies) < 80 for bodies in got.values()), got


@case
def a_local_random_exchange(session):
    got = spread(session, "x-local-random", ["always the same"] * 200)
    assert all(20 < len(bodies) < 80 for bodies in got.values()), got
    quorum = "Queue type rabbit_quorum_queue not valid for this exchange type"
    for queue, key, text in ((session.queue(), "key", "Non empty binding 'key' key not permitted"),
                             (session.queue({"x-queue-type": "quorum"}), "", quorum)):
        channel = session.connection.channel()
        channel.exchange_declare("details-local", "x-local-random", durable=True)
        try:
            channel.queue_bind(queue, "details-local", key)
            raise AssertionError(f"{key!r} was bound")
        except ChannelClosedByBroker as refused:
            assert refused.reply_code == 406 and text in refused.reply_text, refused
    session.channel.exchange_delete("details-local")


@case
def a_modulus_exchange(session):
    keys = [f"key {number}" for number in range(100)]
    got = spread(session, "x-modulus-hash", keys + keys)
    places = collections.Counter((key, queue) for queue, bodies in got.items() for key in bodies)
    assert set(places.values()) == {2} and all(got.values()), "the same key to the same queue, and each has some"


@case
def what_has_come_is_given_out_before_a_get(session):
    queue = session.queue({"x-max-length": 2})
    for round_ in range(50):
        session.publish(queue, b"1", b"2", b"3")
        got = [session.channel.basic_get(queue, auto_ack=True)[2] for _ in range(3)]
        assert got == [b"2", b"3", None], (round_, got)
    plain, consumed = session.queue(), []
    session.channel.basic_consume(plain, lambda _c, _m, _p, body: consumed.append(body), auto_ack=True)
    for number in range(50):
        session.publish(plain, b"for the consumer")
        assert session.channel.basic_get(plain)[0] is None, f"message {number} was not the consumer's"
    session.pump(lambda: len(consumed) == 50)
    assert len(consumed) == 50


@case
def a_passive_declaration_extends_a_lease(session):
    queue = session.queue({"x-expires": 900})
    for _ in range(4):
        time.sleep(0.5)
        session.channel.queue_declare(queue, passive=True)


@case
def names_are_without_line_ends(session):
    queue = session.queue()
    # pika waits for the name that it has sent when it declares a queue, so these are bound and deleted.
    exchange = session.name()
    session.channel.exchange_declare(f"{exchange}\n", "fanout", durable=True)
    session.channel.exchange_declare(exchange, passive=True)
    session.channel.queue_bind(f"\n{queue}", f"{exchange}\r")
    session.publish("", b"routed", exchange=exchange)
    assert session.drain(queue, 1) == [b"routed"]
    session.channel.exchange_delete(f"{exchange}\r\n")


@case
def a_server_asks_whether_its_client_still_waits(session):
    replies, requests = [], session.queue()
    waiting = session.connection.channel()
    waiting.basic_consume("amq.rabbitmq.reply-to", lambda _c, _m, _p, body: replies.append(body), auto_ack=True)
    waiting.basic_publish("", requests, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    address = session.get(requests, auto_ack=True)[1].reply_to
    found = session.connection.channel().queue_declare(address, passive=True).method
    assert (found.queue, found.message_count, found.consumer_count) == (address, 0, 1), found
    session.channel.basic_publish("", address, b"answer")
    session.pump(lambda: replies)
    waiting.close()
    try:
        session.connection.channel().queue_declare(address, passive=True)
        raise AssertionError("it is there without its client")
    except ChannelClosedByBroker as refused:
        assert refused.reply_code == 404, refused


def frame(kind, channel, payload):
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


@case
def who_closes_with_more_on_the_way_reads_that_it_is_agreed(session):
    """amqplib sends connection.close before what other channels still have to send: the answer must not be lost by a reset."""
    host, port = session.address.rsplit(":", 1)
    for _ in range(20):
        with socket.create_connection((host, int(port)), 5) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.sendall(b"AMQP\x00\x00\x09\x01")
            link.recv(65536)
            start_ok = b"\x00\x0a\x00\x0b" + bytes(4) + b"\x05PLAIN" + b"\x00\x00\x00\x0c\x00guest\x00guest" + b"\x05en_US"
            link.sendall(frame(1, 0, start_ok))
            tune = link.recv(65536)[7:-1]
            link.sendall(frame(1, 0, b"\x00\x0a\x00\x1f" + tune[4:10] + b"\x00\x00") + frame(1, 0, b"\x00\x0a\x00\x28\x01/\x00\x00"))
            link.recv(65536)
            link.sendall(frame(1, 0, b"\x00\x0a\x00\x32\x00\xc8\x00" + bytes(4)))
            try:
                for _ in range(50):
                    link.sendall(frame(8, 0, b"") * 100)
            except OSError as error:
                raise AssertionError(f"what came after connection.close was refused: {error}") from error
            link.shutdown(socket.SHUT_WR)
            rest = b""
            while piece := link.recv(65536):
                rest += piece
            assert frame(1, 0, b"\x00\x0a\x00\x33") in rest, rest


@case
def a_close_in_good_order_is_told_as_one_and_a_refused_login_as_what_it_is(session):
    host, port = session.address.rsplit(":", 1)
    reasons = collections.Counter()

    def closed(connection, reason):
        reasons[type(reason).__name__] += 1
        connection.ioloop.stop()

    for number in range(1000):
        # Each second has another password.
        login = pika.PlainCredentials("guest", "guest" if number % 2 else "wrong")
        parameters = pika.ConnectionParameters(host, int(port), credentials=login)
        connection = pika.SelectConnection(parameters, on_open_callback=lambda one: one.close(), on_open_error_callback=closed, on_close_callback=closed)
        connection.ioloop.start()
    assert reasons == {"ConnectionClosedByClient": 500, "ProbableAuthenticationError": 500}, reasons


@case
def what_one_connection_has_published_another_one_gets(session):
    """Without a confirm: as soon as the publisher's connection has been read, of which another channel's answer tells."""
    host, port = session.address.rsplit(":", 1)
    other = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    getter, control = other.channel(), session.connection.channel()
    missing = collections.Counter()
    for kind, mode in (("classic", 2), ("classic", 1), ("quorum", 2)):
        queue = session.queue({"x-queue-type": kind})
        for number in range(100):
            session.channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=mode))
            control.basic_qos(prefetch_count=1)
            body = getter.basic_get(queue, auto_ack=True)[2]
            if body is None:
                missing[kind, mode] += 1
                body = session.get(queue, auto_ack=True)[2]
            assert body == b"%d" % number, f"{body} instead of {number}"
    other.close()
    assert not missing, f"not there in time: {missing}"


if __name__ == "__main__":
    cases.main(ours=[])
