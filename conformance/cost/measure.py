"""What a request costs the process that answers it: its processor time, its memory, and how long others wait meanwhile."""

import dataclasses
import time
from pathlib import Path

MIB = 1 << 20


class Process:
    """Accounts of a process. Processor time is that of all its threads, to the nanosecond."""

    def __init__(self, pid):
        self.pid = pid
        # The clock of another process, as clock_getcpuclockid(3) makes it.
        self.clock = ~pid << 3 | 2

    def cpu(self):
        return time.clock_gettime(self.clock)

    def rss(self):
        return self.status("VmRSS")

    def peak(self):
        """The most that was resident since `forget_peak`."""
        return self.status("VmHWM")

    def forget_peak(self):
        Path(f"/proc/{self.pid}/clear_refs").write_text("5\n")

    def status(self, name):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
        raise ProcessLookupError(name)

    def idle(self, share=0.1, longest=5.0):
        """Waits until what it does beside is little: less than this share of a core."""
        until = time.monotonic() + longest
        while time.monotonic() < until:
            before = self.cpu()
            time.sleep(0.02)
            if self.cpu() - before < 0.02 * share:
                return


@dataclasses.dataclass
class Sample:
    """One request, or several alike, of one size."""

    entries: int
    sent: int  # bytes
    answered: int = 0  # bytes
    cpu: float = 0.0  # seconds
    took: float = 0.0  # seconds
    peak: int = 0  # bytes beyond what was resident before
    resident: int = 0  # bytes at the most
    fault: str | None = None
    waits: dict = dataclasses.field(default_factory=dict)  # seconds, by who waited


def take(process, entries, sent, exchange, waits=None):
    """Measures an exchange, a function that returns how many bytes came back, or raises. `waits`: watches others meanwhile."""
    sample = Sample(entries, sent)
    try:
        process.forget_peak()
        before, resident = process.cpu(), process.rss()
        if waits:
            waits.begin()
        began = time.monotonic()
        try:
            sample.answered = exchange()
        finally:
            sample.took = time.monotonic() - began
            if waits:
                sample.waits = waits.end()
        sample.cpu = process.cpu() - before
        sample.resident = process.peak()
        sample.peak = max(0, sample.resident - resident)
    except (ProcessLookupError, FileNotFoundError) as gone:
        sample.fault = f"the broker has ended: {gone}"
    except TimeoutError:
        sample.fault = f"no answer in {sample.took:.0f} s"
    except OSError as error:
        sample.fault = f"{type(error).__name__}: {error}"
    return sample


def kept(process, sent, exchange, rounds=3, tries=8):
    """Bytes that stay of each of some requests of `sent` bytes, as a share of them, after one or two that warm up. What the allocator keeps
    for the next grows once, in each of the threads that take turns; what is kept of each request grows each time, so the least of several tries counts."""
    least = None
    for _ in range(2):
        exchange()
    for _ in range(tries):
        before = process.rss()
        for _ in range(rounds):
            exchange()
        share = max(0.0, (process.rss() - before) / (rounds * sent))
        least = share if least is None else min(least, share)
        if least < 0.25:
            break
    return least
