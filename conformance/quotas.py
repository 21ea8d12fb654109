"""Quotas as programs of this folder set them, and as they measure what they come to."""

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from client import Connection


class Quotas:
    """Sets quotas over a connection of its own."""

    def __init__(self, bootstrap):
        host, port = bootstrap.rsplit(":", 1)
        self.connection = Connection((host, int(port)))

    def set(self, entity, **values):
        """`entity`: names by kind, None for the default. A value of None takes the quota away."""
        ops = [{"key": key, "value": float(value or 0), "remove": value is None} for key, value in values.items()]
        parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        self.connection.request("AlterClientQuotas", 1, {"entries": [{"entity": parts, "ops": ops}], "validate_only": False})
        [outcome] = self.connection.response("AlterClientQuotas", 1)["entries"]
        assert outcome["error_code"] == 0, outcome

    def group(self, group, **settings):
        """Sets settings of a group; dots are written as underlines."""
        configs = [{"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in settings.items()]
        body = {"resources": [{"resource_type": 32, "resource_name": group, "configs": configs}], "validate_only": False}
        self.connection.request("IncrementalAlterConfigs", 1, body)
        [outcome] = self.connection.response("IncrementalAlterConfigs", 1)["responses"]
        assert outcome["error_code"] == 0, outcome


class Meter:
    """Counts bytes as they come, and says what came in a span of time."""

    def __init__(self):
        self.lock, self.total, self.events = threading.Lock(), 0, []

    def add(self, count):
        with self.lock:
            self.total += count
            self.events.append((time.monotonic(), self.total))

    def between(self, start, end):
        """Bytes a second."""
        with self.lock:
            before = max((total for at, total in self.events if at <= start), default=0)
            after = max((total for at, total in self.events if at <= end), default=0)
        return (after - before) / (end - start)

    def over(self, seconds):
        start = time.monotonic()
        time.sleep(seconds)
        return self.between(start, start + seconds)


def near(value, wanted, tolerance, what):
    assert abs(value / wanted - 1) <= tolerance, f"{what}: {value / 1e6:.2f} MB/s, wanted {wanted / 1e6:.2f} MB/s"
