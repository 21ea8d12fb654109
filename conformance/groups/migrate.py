"""A group changes from the classic to the consumer protocol and back while its members, of two clients, read on: a rolling
upgrade and a rolling downgrade. Each record is read, and committed positions are the ends.
Arguments: binary, and the clients that are missing."""

import signal
import sys
import tempfile
import time

from common import FLAGS, Load, Member, check_read, create, kind_of, wait_until, wait_until_shared
from driver.broker import Broker

TOPIC, GROUP = "lines", "readers"


def migrate(binary, missing):
    kinds = ["librdkafka", "librdkafka" if "java" in missing else "java"]
    with tempfile.TemporaryDirectory(prefix="mainstem-groups-") as scratch:
        broker = Broker(binary, f"{scratch}/data", FLAGS).start()
        members, everybody = [], []

        def enter(kind, protocol):
            members.append(Member(kind, broker.bootstrap, TOPIC, GROUP, protocol))
            everybody.append(members[-1])

        def expect(kind, why):
            wait_until_shared(members, why)
            wait_until(lambda: f"{why} the group is {kind_of(broker.bootstrap, GROUP)}", lambda: kind_of(broker.bootstrap, GROUP) == kind)
            time.sleep(1)
        try:
            create(broker.bootstrap, TOPIC)
            load = Load(broker.bootstrap, TOPIC)
            for kind in kinds:
                enter(kind, "classic")
            expect("classic", "at the start")
            # Up: one after the other is replaced.
            enter(kinds[0], "consumer")
            expect("consumer", "with the first of the new protocol")
            members.pop(0).end()
            expect("consumer", "with one of each")
            enter(kinds[1], "consumer")
            expect("consumer", "with two of the new protocol")
            broker.end(signal.SIGKILL)
            broker.start()
            time.sleep(2)
            expect("consumer", "after the broker was killed")
            members.pop(0).end()
            expect("consumer", "with none of the classic protocol")
            # And down again.
            enter(kinds[0], "classic")
            expect("consumer", "with the first that goes back")
            members.pop(0).end()
            expect("consumer", "with one of the new protocol left")
            members.pop(0).end()
            enter(kinds[1], "classic")
            expect("classic", "in the end")
            load.end()
            count = check_read(broker.bootstrap, TOPIC, GROUP, everybody)
            for member in members:
                member.end()
            print(f"{count} records read by {len(everybody)} members")
        finally:
            for member in members:
                member.end(kill=True)
            broker.end(signal.SIGKILL)


if __name__ == "__main__":
    migrate(sys.argv[1], set(sys.argv[2:]))
