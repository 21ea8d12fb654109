"""Does an acknowledgement reach the disk?"""

from machine import Folder, Mainstem, load


def device_flushes():
    """Flush requests that the devices under the scratch folder have completed, or None where none counts them."""
    total, counted = 0, False
    for line in open("/proc/diskstats"):
        fields = line.split()
        if len(fields) >= 19 and not fields[2].startswith(("loop", "ram")) and not fields[2][-1].isdigit():
            total, counted = total + int(fields[18]), True
    return total if counted else None


def flushes(report):
    """2,000 acknowledged `fsync` produces, one after the other, raise the device's count of flushes by as many."""
    with Folder() as folder:
        broker = Mainstem(f"{folder}/data").start()
        try:
            load("latency", broker.bootstrap, "flushes", 1, 1, 10)
            before = device_flushes()
            result = load("latency", broker.bootstrap, "flushes", 1, 20, 100, "max.in.flight=1", "linger.ms=0", "acks=all",
                          "batch.num.messages=1")
            after = device_flushes()
            report.note(**result, flushes_before=before, flushes_after=after)
            raised = None if before is None else after - before
            report.judge("flushes for 2,000 acknowledged records", "the device does not count" if not raised else raised, ">= 2,000",
                         None if not raised else raised >= 2000)
        finally:
            broker.stop()
