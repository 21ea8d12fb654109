"""A group of the consumer protocol with members of two clients: they join, leave and are killed, and so is the broker, with
kill −9. Each record is read, committed positions are the ends, and a broker that comes back still knows its members.
Arguments: binary, seconds, and the clients that are missing."""

import signal
import sys
import tempfile
import time

from common import FLAGS, Load, Member, check_read, create, kind_of, wait_until_shared
from driver.broker import Broker

TOPIC, GROUP = "lines", "readers"


def survive(binary, seconds, missing):
    kinds = ["librdkafka", "librdkafka" if "java" in missing else "java"]
    with tempfile.TemporaryDirectory(prefix="mainstem-groups-") as scratch:
        broker = Broker(binary, f"{scratch}/data", FLAGS).start()
        members, everybody = [], []

        def enter(kind):
            members.append(Member(kind, broker.bootstrap, TOPIC, GROUP, "consumer"))
            everybody.append(members[-1])
        try:
            create(broker.bootstrap, TOPIC)
            load = Load(broker.bootstrap, TOPIC)
            for number in range(4):
                enter(kinds[number % 2])
            wait_until_shared(members, "at the start")
            rounds, until = 0, time.time() + seconds
            while rounds < 4 or time.time() < until:
                if rounds % 4 == 0:
                    before = [sorted(member.has) for member in members]
                    broker.end(signal.SIGKILL)
                    broker.start()
                    time.sleep(3)
                    after = [sorted(member.has) for member in members]
                    assert before == after, f"the broker forgot its members: {before} became {after}"
                elif rounds % 4 == 1:
                    members.pop(0).end(kill=True)
                    wait_until_shared(members, "after a kill")
                elif rounds % 4 == 2:
                    members.pop(0).end()
                    wait_until_shared(members, "after one left")
                else:
                    enter(kinds[0])
                    enter(kinds[1])
                    wait_until_shared(members, "after two joined")
                rounds += 1
                time.sleep(0.5)
            load.end()
            count = check_read(broker.bootstrap, TOPIC, GROUP, everybody)
            assert kind_of(broker.bootstrap, GROUP) == "consumer"
            for member in members:
                member.end()
            print(f"{count} records read, {rounds} rounds")
        finally:
            for member in members:
                member.end(kill=True)
            broker.end(signal.SIGKILL)


if __name__ == "__main__":
    survive(sys.argv[1], float(sys.argv[2]), set(sys.argv[3:]))
