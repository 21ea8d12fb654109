"""UpdateFeatures: raising, lowering and asking whether one could."""

from . import case

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def update(t, *wishes, version=2, kind=UPGRADE, validate=False, lower=False):
    """Wishes are names and levels."""
    how = {"upgrade_type": kind} if version > 0 else {"allow_downgrade": lower}
    updates = [{"feature": name, "max_version_level": level, **how} for name, level in wishes]
    wish = {"timeout_ms": 15_000, "feature_updates": updates}
    if version > 0:
        wish["validate_only"] = validate
    return t.ask("UpdateFeatures", version, wish)


@case
def features_raised_to_where_they_are(t):
    for version in range(3):
        update(t, ("transaction.version", 2), version=version)
        update(t, ("metadata.version", 30), version=version)
    update(t, ("transaction.version", 2), ("metadata.version", 30))


@case
def features_raised_beyond_what_is_there(t):
    for version in range(3):
        update(t, ("transaction.version", 3), version=version)
    update(t, ("metadata.version", 300))
    update(t, ("transaction.version", 3), validate=True)


@case
def features_that_nobody_knows(t):
    for version in range(3):
        update(t, ("no.such.feature", 1), version=version)
    update(t, ("no.such.feature", 1), validate=True)
    update(t, ("no.such.feature", 0))
    update(t, ("", 1))


@case
def features_good_and_bad_in_a_request(t):
    for version in range(3):
        update(t, ("transaction.version", 2), ("no.such.feature", 1), version=version)
        update(t, ("no.such.feature", 1), ("transaction.version", 2), version=version)


@case
def features_lowered_by_an_upgrade(t):
    for version in range(3):
        update(t, ("transaction.version", 1), version=version)
    update(t, ("metadata.version", 25))
    update(t, ("transaction.version", 1), validate=True)


@case
def features_lowered_to_where_they_are(t):
    for kind in (SAFE, UNSAFE):
        update(t, ("transaction.version", 2), kind=kind)
        update(t, ("metadata.version", 30), kind=kind)
    update(t, ("transaction.version", 2), version=0, lower=True)


@case
def features_lowered_to_a_higher_level(t):
    for kind in (SAFE, UNSAFE):
        update(t, ("transaction.version", 3), kind=kind)


@case
def features_lowered_only_validated(t):
    for kind in (SAFE, UNSAFE):
        update(t, ("transaction.version", 1), kind=kind, validate=True)
        update(t, ("transaction.version", 0), kind=kind, validate=True)


@case
def features_of_metadata_lowered_unsafely(t):
    update(t, ("metadata.version", 29), kind=UNSAFE, validate=True)


@case
def features_with_a_negative_level(t):
    update(t, ("transaction.version", -1))
    update(t, ("transaction.version", -1), kind=SAFE)
    update(t, ("no.such.feature", -1))


@case
def features_in_an_unknown_way(t):
    for kind in (0, 9, -1):
        update(t, ("transaction.version", 2), kind=kind)
        update(t, ("transaction.version", 1), kind=kind, version=1)


@case
def features_twice_in_a_request(t):
    for version in range(3):
        update(t, ("transaction.version", 2), ("transaction.version", 2), version=version)


@case
def features_of_none(t):
    for version in range(3):
        update(t, version=version)
    update(t, validate=True)


@case
def features_of_metadata_in_every_way(t):
    for kind in (UPGRADE, SAFE, UNSAFE):
        update(t, ("metadata.version", 30), kind=kind, validate=True)
        update(t, ("metadata.version", 31), kind=kind, validate=True)
        update(t, ("metadata.version", 6), kind=kind, validate=True)
        update(t, ("metadata.version", 0), kind=kind, validate=True)
