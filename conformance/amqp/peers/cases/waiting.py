"""What is closed because nothing comes, or answered slowly."""

import time

import wire
from . import case


@case
def heartbeats_that_are_missing(t):
    # Two intervals of one second without a frame; the answer may take a check more.
    t.connect(heartbeat=1)
    began = time.monotonic()
    t.frames("nothing", b"", expect=1)
    t.note(early=time.monotonic() - began < 1.5)


@case
def heartbeats_that_come(t):
    t.connect(heartbeat=1)
    for _ in range(8):
        t.link.raw(wire.frame(wire.HEARTBEAT, 0, b""))
        time.sleep(0.5)
    t.send("basic.qos")


@case
def heartbeats_replaced_by_other_frames(t):
    t.connect(heartbeat=1)
    for _ in range(8):
        t.link.method(1, "basic.qos")
        t.link.expect("basic.qos-ok")
        time.sleep(0.5)
    t.send("basic.qos")


@case
def heartbeats_that_are_not_wanted(t):
    t.connect(heartbeat=0)
    time.sleep(4)
    t.send("basic.qos")
