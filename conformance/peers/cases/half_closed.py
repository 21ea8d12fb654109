"""Clients that send all they have to ask, say that no more comes (a half close), and read then. What was sent whole is answered."""

import socket
import struct
import time

from batch import batch
from client import Closed, join, produce
from . import case


def end_of_requests(t):
    t.connection.socket.shutdown(socket.SHUT_WR)


def answered(t, requests):
    """Notes how many answers come, in the order of the requests, before the connection is closed."""
    first, count = t.connection.correlation - requests + 1, 0
    try:
        while struct.unpack(">i", t.connection.receive()[:4])[0] == first + count:
            count += 1
        t.note(requests=requests, answers=count, then="an answer to another request")
    except Closed:
        t.note(requests=requests, answers=count, then="closed")
    except TimeoutError:
        t.note(requests=requests, answers=count, then="nothing in time")


@case
def half_closed_behind_one_request(t):
    t.connection.request("ApiVersions", 0, {})
    end_of_requests(t)
    answered(t, 1)


@case
def half_closed_behind_a_hundred_requests(t):
    for _ in range(100):
        t.connection.request("ApiVersions", 0, {})
    end_of_requests(t)
    answered(t, 100)


@case
def half_closed_behind_records(t):
    topic = t.topic()
    for at in range(20):
        t.connection.request("Produce", 9, produce(topic, batch([b"value %d" % at])))
    end_of_requests(t)
    answered(t, 20)
    t.again()
    t.ask("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]})


@case
def half_closed_behind_records_without_answers(t):
    topic = t.topic()
    for at in range(100):
        t.connection.request("Produce", 9, produce(topic, batch([b"value %d" % at]), acks=0))
    end_of_requests(t)
    answered(t, 0)
    wish = {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    # Without acknowledgements nobody is told when they can be read.
    end, until = -1, time.time() + 10
    while end != 100 and time.time() < until:
        end = t.quiet("ListOffsets", 7, wish)["topics"][0]["partitions"][0]["offset"]
    t.note(records=end)


@case
def half_closed_behind_a_fetch_that_waits(t):
    topic = t.topic()
    partitions = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    t.connection.request("ApiVersions", 0, {})
    t.connection.request("Fetch", 11, {"replica_id": -1, "max_wait_ms": 1000, "min_bytes": 1, "max_bytes": 1 << 20,
                                       "topics": [{"topic": topic, "partitions": partitions}]})
    t.connection.request("ApiVersions", 0, {})
    end_of_requests(t)
    answered(t, 3)


@case
def half_closed_within_a_request(t):
    t.connection.request("ApiVersions", 0, {})
    t.connection.raw(struct.pack(">i", 100) + b"\0\x12\0\0")
    end_of_requests(t)
    answered(t, 1)


@case
def half_closed_behind_a_fetch_that_waits_longer(t):
    topic = t.topic()
    partitions = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    t.connection.request("Fetch", 11, {"replica_id": -1, "max_wait_ms": 11_000, "min_bytes": 1, "max_bytes": 1 << 20,
                                       "topics": [{"topic": topic, "partitions": partitions}]})
    t.connection.request("ApiVersions", 0, {})
    end_of_requests(t)
    answered(t, 2)


@case
def half_closed_behind_a_join_that_waits(t):
    group = t.group()
    member, _ = t.member(group)
    second = t.quiet_here("JoinGroup", 6, join(group))["member_id"]
    t.connection.request("JoinGroup", 6, join(group, second))
    end_of_requests(t)
    time.sleep(0.5)
    # The other member joins again, and so the second one is answered.
    again = t.begin("JoinGroup", 6, join(group, member))
    t.note(error_code=t.connection.response("JoinGroup", 6)["error_code"])
    answered(t, 0)
    again[0].close()
