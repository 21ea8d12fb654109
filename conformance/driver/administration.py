"""Administration by the command line, beside clients that were there before; what Prometheus says of metrics and rules. Used by the driver."""

import os
import shutil
import subprocess

from driver.install import HERE, PYTHON
from driver.results import call


def promtool():
    """Debian's promtool; why it is not there, otherwise."""
    if shutil.which("promtool"):
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        call(["apt-get", "install", "-y", "-q", "--no-install-recommends", "prometheus"], limit=300, env=environment)
    except Exception as error:
        return f"promtool is not there and `apt-get install prometheus` says: {error}"
    return None if shutil.which("promtool") else "promtool is not in Debian's package prometheus"


def run(results, binary):
    missing = promtool()
    if missing:
        results.note("administration: metrics and rules", missing)
    done = subprocess.run([str(PYTHON), str(HERE / "administration/works.py"), str(binary), "" if missing else "promtool"], capture_output=True, timeout=120)
    told(results, "administration", done)
    console = results.step("install what shows the console", lambda: call([str(HERE.parent / "console/prepare")], 600))
    figures = [str(PYTHON), str(HERE / "administration/figures.py"), str(binary), *(["console"] if console else [])]
    told(results, "lag, sizes and counts are those of clients", subprocess.run(figures, capture_output=True, timeout=300))


def told(results, about, done):
    """Notes what a program has said of its cases, a line each."""
    lines = done.stdout.decode(errors="replace").splitlines()
    for line in lines:
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        results.note(f"{about}: {name.replace('-', ' ')}", None if verdict == "ok" else why)
    if not lines:
        results.note(about, done.stderr.decode(errors="replace")[-400:])
