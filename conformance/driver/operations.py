"""What an operator does with a node while clients are at work: ending it, and the rest of `docs/operations`. Used by the driver."""

from driver.install import HERE, OTLP_PYTHON, PYTHON
from driver.results import call


def program(name, *words, limit=120, python=PYTHON):
    print("      " + call([str(python), str(HERE / "operations" / name), *map(str, words)], limit).decode().strip().replace("\n", "\n      "), flush=True)


def run(results, binary, moments):
    results.step("a broker ends under long polls and AMQP consumers: all are told, nothing that was acknowledged is lost",
                 lambda: program("drain.py", binary, 60, 20, "verb", 5))
    results.step("a backup under load, restored elsewhere, has all that was acknowledged before it",
                 lambda: program("backup.py", binary))
    results.step("restores and backups that are killed leave what is refused by name, and are begun again", lambda: program("killed.py", binary, 30, 5, limit=240))
    results.step(f"{moments} backups of three journals under transactions, restored: each transaction is whole or absent, offsets are with their data",
                 lambda: program("moments.py", binary, moments, limit=60 + 30 * moments))
    results.step("a damaged folder is verified, salvaged and repaired, and moves to another file system",
                 lambda: program("damage.py", binary))
    results.step("an archive object that is gone is named, all else is read, and so is it once it is put back", lambda: program("missing_object.py", binary))
    results.step("a journal whose disk fails is named and refuses, the others go on; nothing that was acknowledged is lost, also when it moves",
                 lambda: program("failed_disk.py", binary))
    results.step("settings that are read again are in force, and a wrong file is refused with its line", lambda: program("reload.py", binary))
    results.step("metrics reach a collector of OpenTelemetry as they are at /metrics, also over HTTPS, and one in trouble costs nothing",
                 lambda: program("otlp.py", binary, python=OTLP_PYTHON))
    for kept in sorted((HERE / "operations").glob("format-*.tar.gz")):
        results.step(f"a data folder of {kept.name.split('.')[0].replace('-', ' ')} opens with all that was in it",
                     lambda kept=kept: program("format.py", "check", binary, kept))
    results.step("a client that reads nothing does not hold up the end of a broker", lambda: program("stubborn.py", binary))
