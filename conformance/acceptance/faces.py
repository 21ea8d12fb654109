"""One queue, worked off through both of its faces, while those who work are killed."""

import re

from driver import install
from driver.results import call
from machine import HERE, ROOT

SECONDS = 60
NAMES = ["messages", "killed", "again", "unheard", "looked_at", "given_before"]


def faces(report):
    """Two AMQP consumers (pika) and two members of the queue's share group (franz-go) work off one quorum queue while it is filled. For 60 s one
    of them is killed (SIGKILL) every 0.3 to 1.5 s, and every 5 to 15 s all are: then both admin APIs have to say the same of what is left.
    `conformance/amqp/together.py` is the judge: it fails when a message is done twice or not at all, or counts of deliveries differ."""
    seconds = max(5, round(SECONDS * report.scale))
    command = [str(install.PYTHON), str(HERE.parent / "amqp/together.py"), str(ROOT / "target/release/mainstem"), str(install.CACHE / "franz-go"), str(seconds)]
    said = call(command, seconds + 180).decode().strip().splitlines()[-1]
    found = dict(zip(NAMES, map(int, re.findall(r"\d+", said)), strict=True))
    report.note(**found)
    report.judge("messages done once, of those published", found["messages"], "all, or the judge says which are not", True)
    report.judge("deliveries again, which were counted alike", found["again"], "> 0", found["again"] > 0)
    report.judge("waiting messages of which both admin APIs counted the same deliveries", found["looked_at"], "> 0", found["looked_at"] > 0)
