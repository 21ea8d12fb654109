"""The table of cases: one file per subject, each case a function that is given a `client.Case`."""

CASES = {}


def add(name, function):
    name = name.strip("_").replace("_", "-")
    assert name not in CASES, f"two cases called {name}"
    CASES[name] = function


def case(function):
    """Adds a case under its function's name, with dashes."""
    add(function.__name__, function)
    return function


def each(**values):
    """Adds a case for each value, under the function's name and the value's."""
    def adder(function):
        for label, value in values.items():
            add(f"{function.__name__}-{label}", lambda t, value=value: function(t, value))
        return function
    return adder


def table():
    """Every case by name, in the order of the files: those that wait come first."""
    from . import (waiting, half_closed, handshake, frames, methods, content, channels, exchanges, queues, arguments, bindings, consumers,  # noqa: F401
                   acknowledgements, publishing, modes)
    return CASES
