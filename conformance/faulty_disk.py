"""A broker whose disk can be made slow, or broken, while it runs, by a library between it and the C library (`faulty_disk.c`); it writes without io_uring
then, which goes past any library. Needs cc."""

import errno
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ["--io", "buffered"]


class FaultyDisk:
    """`prefix` goes before the broker's command, `FLAGS` among its flags."""

    def __init__(self, scratch):
        self.control, library = Path(scratch, "faults"), Path(scratch, "faulty_disk.so")
        self.heal()
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"], check=True, capture_output=True)
        self.prefix = ["env", f"LD_PRELOAD={library}", f"FAULTY_DISK={self.control}"]

    def say(self, words):
        """All at once: the broker never reads half of it."""
        new = self.control.with_suffix(".new")
        new.write_text(words)
        os.replace(new, self.control)

    def heal(self):
        self.say("")

    def slow(self, folder, seconds):
        """Each write and flush below this folder takes so much longer."""
        self.say(f"{round(seconds * 1e6)} 0 {place(folder)}/")

    def fail(self, folder):
        """Each write and flush below this folder fails: input/output error."""
        self.say(f"0 {errno.EIO} {place(folder)}/")

    def full(self, folder):
        """No space can be allocated below this folder: no space left on device."""
        self.say(f"0 {errno.ENOSPC} {place(folder)}/")


def place(folder):
    """Where the folder itself is, not what it may link to."""
    return Path(os.path.realpath(Path(folder).parent), Path(folder).name)
