"""The tools of Kafka's distribution, as programs of this folder call them."""

import subprocess

from driver.install import java_command


class Machine:
    """One virtual machine that runs tools one after the other: starting one for each takes longer than all they do."""

    def __init__(self):
        self.process = subprocess.Popen(java_command("Tools"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def run(self, words, text):
        """Exit status, and what was printed."""
        line = "\x1f".join([*words, text.replace("\n", "\x1e")])
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        status, size = map(int, self.process.stdout.readline().split())
        return status, self.process.stdout.read(size).decode(errors="replace")
