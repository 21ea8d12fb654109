"""The table of cases: one file per subject, each case a function that is given a `client.Case`."""

CASES = {}


def case(function):
    """Adds a case under its function's name, with dashes."""
    name = function.__name__.strip("_").replace("_", "-")
    assert name not in CASES, f"two cases called {name}"
    CASES[name] = function
    return function


def table():
    """Every case by name, in the order of the files."""
    from . import (cluster, compaction, configs, consumer_groups, features, fetch, frames, groups, half_closed, login, offsets, partitions, produce, quotas, refused, share, share_groups,  # noqa: F401
                   streams_groups, topics, transactions)
    return CASES


UNKNOWN_ID = "6f1d9f5e-3c1b-4c5e-9a57-0d5b7a1c2e33"
