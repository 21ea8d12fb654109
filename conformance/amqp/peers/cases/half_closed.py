"""Clients that publish and say that no more comes (a half close). What was published whole is in its queue."""

import socket
import time

from client import Closed, publish
from wire import METHOD, frame, method
from . import case

# Together more than a journal has room for at once.
MANY = 3000
SIZE = 10_000


def half_close(link):
    link.socket.shutdown(socket.SHUT_WR)


def seen_until_closed(t, link):
    """What comes until the connection is closed, by name."""
    seen = []
    try:
        while True:
            kind, _, payload = link.receive()
            seen.append(kind if kind != METHOD else payload[:4].hex())
    except Closed:
        t.note(seen=len(seen), then="closed")
    except TimeoutError:
        t.note(seen=len(seen), then="nothing in time")


@case
def half_closed_behind_messages(t):
    queue, link = t.queue(), t.another()
    link.raw(b"".join(publish(1, b"x" * SIZE, routing_key=queue) for _ in range(MANY)))
    half_close(link)
    count, until = -1, time.monotonic() + 10
    while count != MANY and time.monotonic() < until:
        count = t.other.call(1, "queue.declare", queue=queue, passive=True)["message-count"]
        time.sleep(0.05)
    t.note(sent=f"{MANY} messages", found=count)


@case
def half_closed_within_a_message(t):
    queue = t.queue()
    link = t.another()
    link.raw(publish(1, b"whole", routing_key=queue) + publish(1, b"in part", routing_key=queue)[:-3])
    half_close(link)
    seen_until_closed(t, link)
    time.sleep(0.5)
    t.note(found=t.other.call(1, "queue.declare", queue=queue, passive=True)["message-count"])


@case
def half_closed_behind_a_question(t):
    link = t.another()
    link.raw(frame(METHOD, 1, method("basic.qos", prefetch_count=1)))
    half_close(link)
    seen_until_closed(t, link)
