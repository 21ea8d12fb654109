"""Small windows of a journal: nobody waits for an archiver that could have worked meanwhile.

The producer is `raw-load`, whose requests name many partitions, as those of Java's and Go's clients do. librdkafka sends a request per partition: with
500 that are 19,000 requests a second of one or two records, which take a processor by themselves. Where there are two, it measures how its own queue
grows and shrinks: its latest record waited 107 ms while the broker answered each of 753,716 requests within 26 ms (8 segments of 64 MiB)."""

import signal
import statistics

from machine import Folder, Mainstem, create, raw_load

MIB = 1 << 20
RATE = 30_000
# Segments of a window, and partitions that are written evenly, by the length of a segment in MiB.
WINDOWS = {16: [8, 9, 10, 12, 16], 256: [8, 16]}
PARTITIONS = {16: [1, 20, 100, 500], 256: [1, 500]}
AMPLE = 64
REFUSED = 7
# Of answers within a few commits of each other nothing can be said beside other load.
NOISE_MS = 100


def windows(report):
    """30 MB/s are written evenly to 1 to 500 partitions with windows of 8 to 16 segments of 16 MiB, at least two windows full each: the latest
    answer against that with a window of 64 segments; twice of it, or 100 ms if that is more, is allowed. Where it is later the run is repeated twice, and
    the middle of three counts: a disk that pauses by itself does so seldom. A window of 7 segments is refused."""
    judge(report, 16)


def large_windows(report):
    """The same with segments of 256 MiB, 1 and 500 partitions, and windows of 8 and 16 segments."""
    judge(report, 256)


def judge(report, mib):
    counts = WINDOWS[mib]
    refused = is_refused(mib, REFUSED)
    report.judge(f"{REFUSED} segments of {mib} MiB", "refused" if refused else "taken", "refused", refused)
    for partitions in PARTITIONS[mib]:
        seconds = report.amount(2 * max(counts) * mib * MIB / 1e6 / (RATE * 1024 / 1e6))
        ample = measure(report, mib, AMPLE, partitions, min(seconds, 60))
        for count in counts:
            lasts = max(10, report.amount(2 * count * mib * MIB / RATE / 1024))
            bound = max(2 * ample["max_ms"], NOISE_MS)
            latest = [measure(report, mib, count, partitions, lasts)["max_ms"]]
            if latest[0] > bound:
                latest += [measure(report, mib, count, partitions, lasts)["max_ms"] for _ in range(2)]
            middle = statistics.median(latest)
            report.judge(f"{count} segments of {mib} MiB, {partitions} partitions: latest answer", round(middle), f"<= {bound:.0f} ms", middle <= bound, " ms")


def system_of(folder, mib, segments):
    flags = [f"mainstem.segment.bytes={mib * MIB}", f"mainstem.journal.window.bytes={segments * mib * MIB}"]
    return Mainstem(f"{folder}/data", *(word for flag in flags for word in ("--set", flag)))


def is_refused(mib, segments):
    with Folder() as folder:
        system = system_of(folder, mib, segments)
        try:
            system.start()
        except RuntimeError as error:
            return "mainstem.journal.window.bytes" in str(error)
        system.stop(signal.SIGKILL)
        return False


def measure(report, mib, segments, partitions, seconds):
    with Folder() as folder:
        system = system_of(folder, mib, segments).start()
        try:
            create(system.bootstrap, "even", partitions, retention_ms=-1)
            found = raw_load(system.bootstrap, "even", partitions, RATE, round(seconds))
            waits = [system.journal_sum(f"mainstem_journal_window_wait_seconds_{what}") for what in ("count", "sum")]
            beyond = system.journal_sum("mainstem_journal_window_exceeded_total")
        finally:
            system.stop(signal.SIGKILL)
    report.note(segment_mib=mib, window_segments=segments, partitions=partitions, seconds=seconds, max_ms=found["max_ms"],
                p99_ms=found["p99_ms"], schedule_lag_p99_ms=found["schedule_lag_p99_ms"], waits=waits[0], waited_s=waits[1], beyond=beyond)
    return found
