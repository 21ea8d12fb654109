"""Arguments of queues that cannot be, for classic and quorum queues."""

from wire import Field, Raw
from . import add, case

FLOAT, BYTES, LIST, TABLE = 1.5, b"\xff", [1], {"a": 1}
# Name of the argument, and what it cannot be (or can, where the answer shows that).
WRONG = {
    "x-message-ttl": {"negative": -1, "text": "a", "float": FLOAT, "above": 315_360_000_001, "at-most": 315_360_000_000, "zero": 0,
                      "flag": True, "nothing": None},
    "x-expires": {"negative": -1, "zero": 0, "text": "a", "above": 315_360_000_001, "float": FLOAT},
    "x-max-length": {"negative": -1, "text": "a", "float": FLOAT, "table": TABLE, "zero": 0, "beyond-32-bits": 1 << 40},
    "x-max-length-bytes": {"negative": -1, "text": "a", "list": LIST, "zero": 0},
    "x-overflow": {"unknown": "nonsense", "number": 1, "flag": True, "bytes": BYTES},
    "x-dead-letter-exchange": {"number": 1, "list": LIST, "unknown": "peer-nowhere"},
    "x-dead-letter-routing-key": {"alone": "a", "number": 1},
    "x-max-priority": {"negative": -1, "above": 256, "zero": 0, "text": "a", "at-most": 255, "float": FLOAT},
    "x-single-active-consumer": {"number": 1, "text": "true"},
    "x-queue-mode": {"unknown": "nonsense", "number": 1, "lazy": "lazy"},
    "x-queue-version": {"unknown": 9, "text": "two", "first": 1, "second": 2},
    "x-queue-type": {"unknown": "nonsense", "number": 1, "empty": "", "stream": "stream", "nothing": None},
    "x-queue-leader-locator": {"unknown": "nonsense", "number": 1, "balanced": "balanced"},
    "x-queue-master-locator": {"unknown": "nonsense", "min-masters": "min-masters"},
    "x-delivery-limit": {"classic": 5},
    "x-max-age": {"classic": "1h"},
    "x-quorum-initial-group-size": {"classic": 1},
    "x-consumer-timeout": {"minute": 60_000},
    "x-anything": {"number": 1},
}
QUORUM = {
    "x-delivery-limit": {"negative": -2, "without": -1, "text": "a", "zero": 0, "float": FLOAT},
    "x-max-priority": {"some": 5},
    "x-message-ttl": {"negative": -1, "text": "a"},
    "x-expires": {"zero": 0},
    "x-max-length": {"negative": -1, "text": "a"},
    "x-overflow": {"unknown": "nonsense", "reject-publish-dlx": "reject-publish-dlx", "reject-publish": "reject-publish"},
    "x-queue-mode": {"lazy": "lazy"},
    "x-queue-version": {"second": 2},
    "x-single-active-consumer": {"text": "true"},
    "x-dead-letter-routing-key": {"alone": "a"},
    "x-dead-letter-strategy": {"unknown": "nonsense", "at-most-once": "at-most-once", "at-least-once": "at-least-once", "number": 1},
    "x-quorum-initial-group-size": {"negative": -1, "zero": 0, "text": "a"},
    "x-queue-leader-locator": {"unknown": "nonsense"},
    "x-max-age": {"some": "1h"},
    "x-anything": {"number": 1},
}


def declaring(t, arguments):
    t.send("queue.declare", queue=t.unique("queue"), durable=True, arguments=arguments)


for _name, _values in WRONG.items():
    for _label, _value in _values.items():
        add(f"classic-{_name}-{_label}", lambda t, arguments={_name: _value}: declaring(t, arguments))
for _name, _values in QUORUM.items():
    for _label, _value in _values.items():
        add(f"quorum-{_name}-{_label}", lambda t, arguments={"x-queue-type": "quorum", _name: _value}: declaring(t, arguments))


@case
def arguments_of_two_widths(t):
    declaring(t, {"x-max-length": Field(("B", 5)), "x-message-ttl": Field(("i", 0xFFFFFFFF))})


@case
def argument_that_is_a_decimal(t):
    declaring(t, {"x-max-length": Raw(b"D\0\0\0\0\5")})


@case
def arguments_wrong_twice(t):
    """Which of them is named."""
    declaring(t, {"x-max-length": -1, "x-expires": 0, "x-message-ttl": "a"})
