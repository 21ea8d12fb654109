"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

import time

from . import case

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(t, kind, name, keys=(), version=4, **more):
    one = {"resource_type": kind, "resource_name": name, "configuration_keys": None if keys is None else list(keys)}
    return t.ask("DescribeConfigs", version, {"resources": [one], **more})


def alter(t, name, *changes, kind=TOPIC, version=1, validate=False):
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    one = {"resource_type": kind, "resource_name": name, "configs": configs}
    return t.ask("IncrementalAlterConfigs", version, {"resources": [one], "validate_only": validate})


def seen(t, topic, *keys):
    """What a topic's settings have become."""
    one = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": list(keys)}

    def look():
        configs = t.quiet("DescribeConfigs", 4, {"resources": [one]})["results"][0]["configs"]
        return {row["name"]: f"{row['value']} from {row['config_source']}" for row in configs}
    before = look()
    for _ in range(15):
        t.quiet("Metadata", 1, {"topics": []})
        if look() != before:
            break
        time.sleep(0.02)
    t.note(settings=look())


@case
def configs_of_a_topic_by_key(t):
    topic = t.topic(retention_ms=60_000)
    for version in range(1, 5):
        describe(t, TOPIC, topic, ["retention.ms", "cleanup.policy"], version)


@case
def configs_of_a_topic_with_synonyms(t):
    describe(t, TOPIC, t.topic(retention_ms=60_000), ["retention.ms"], include_synonyms=True)


@case
def configs_of_a_topic_all_names(t):
    one = {"resource_type": TOPIC, "resource_name": t.topic(), "configuration_keys": None}
    configs = t.quiet("DescribeConfigs", 4, {"resources": [one]})["results"][0]["configs"]
    t.note(names=sorted(row["name"] for row in configs))


@case
def configs_of_a_topic_default_values(t):
    one = {"resource_type": TOPIC, "resource_name": t.topic(), "configuration_keys": None}
    configs = t.quiet("DescribeConfigs", 4, {"resources": [one]})["results"][0]["configs"]
    t.note(values={row["name"]: f"{row['value']} of type {row['config_type']}" for row in sorted(configs, key=lambda row: row["name"])})


@case
def configs_by_an_unknown_key(t):
    describe(t, TOPIC, t.topic(), ["no.such.setting"])


@case
def configs_by_no_key(t):
    one = {"resource_type": TOPIC, "resource_name": t.topic(), "configuration_keys": []}
    t.note(rows=bool(t.quiet("DescribeConfigs", 4, {"resources": [one]})["results"][0]["configs"]))


@case
def configs_of_an_unknown_topic(t):
    describe(t, TOPIC, t.unique("topic"), ["retention.ms"])


@case
def configs_of_an_invalid_topic_name(t):
    describe(t, TOPIC, "a b", ["retention.ms"])


@case
def configs_of_an_empty_topic_name(t):
    describe(t, TOPIC, "", ["retention.ms"])


@case
def configs_of_an_unknown_broker(t):
    describe(t, BROKER, "4242", ["log.retention.ms"])


@case
def configs_of_a_broker_without_a_number(t):
    describe(t, BROKER, "first", ["log.retention.ms"])


@case
def configs_of_the_default_broker(t):
    describe(t, BROKER, "", ["log.retention.ms"])


@case
def configs_of_a_resource_of_no_kind(t):
    describe(t, 0, "x")
    describe(t, 99, "x")


@case
def configs_of_client_metrics(t):
    describe(t, METRICS, "none", ["metrics"])


@case
def configs_of_nothing(t):
    t.ask("DescribeConfigs", 4, {"resources": []})


@case
def alter_sets_and_deletes(t):
    topic = t.topic()
    alter(t, topic, ("retention.ms", SET, "60000"))
    seen(t, topic, "retention.ms")
    alter(t, topic, ("retention.ms", DELETE, None))
    seen(t, topic, "retention.ms")


@case
def alter_appends_and_subtracts(t):
    topic = t.topic()
    alter(t, topic, ("cleanup.policy", APPEND, "compact"))
    seen(t, topic, "cleanup.policy")
    alter(t, topic, ("cleanup.policy", APPEND, "compact"))
    seen(t, topic, "cleanup.policy")
    alter(t, topic, ("cleanup.policy", SUBTRACT, "delete"))
    seen(t, topic, "cleanup.policy")
    alter(t, topic, ("cleanup.policy", SUBTRACT, "none-of-them"))


@case
def alter_appends_what_is_there_in_the_middle(t):
    topic = t.topic(cleanup_policy="compact,delete")
    alter(t, topic, ("cleanup.policy", APPEND, "compact"))
    seen(t, topic, "cleanup.policy")


@case
def alter_appends_replicas(t):
    topic = t.topic()
    alter(t, topic, ("leader.replication.throttled.replicas", APPEND, "0:1"))
    alter(t, topic, ("leader.replication.throttled.replicas", APPEND, "1:1,0:1"))
    seen(t, topic, "leader.replication.throttled.replicas")
    alter(t, topic, ("leader.replication.throttled.replicas", SET, "0-1"))
    alter(t, topic, ("leader.replication.throttled.replicas", SET, "*"))


@case
def alter_subtracts_everything(t):
    alter(t, t.topic(), ("cleanup.policy", SUBTRACT, "delete"))


@case
def alter_appends_to_a_number(t):
    alter(t, t.topic(), ("retention.ms", APPEND, "1"))
    alter(t, t.topic(), ("retention.ms", SUBTRACT, "1"))


@case
def alter_deletes_what_is_not_set(t):
    alter(t, t.topic(), ("retention.ms", DELETE, None))


@case
def alter_with_an_unknown_operation(t):
    alter(t, t.topic(), ("retention.ms", 9, "1"))


@case
def alter_an_unknown_setting(t):
    alter(t, t.topic(), ("no.such.setting", SET, "1"))


@case
def alter_deletes_an_unknown_setting(t):
    alter(t, t.topic(), ("no.such.setting", DELETE, None))


@case
def alter_to_a_bad_value(t):
    alter(t, t.topic(), ("retention.ms", SET, "soon"))
    alter(t, t.topic(), ("cleanup.policy", SET, "shred"))


@case
def alter_to_null(t):
    alter(t, t.topic(), ("retention.ms", SET, None))


@case
def alter_to_an_empty_value(t):
    alter(t, t.topic(), ("retention.ms", SET, ""))


@case
def alter_one_setting_twice(t):
    alter(t, t.topic(), ("retention.ms", SET, "1000"), ("retention.ms", SET, "2000"))


@case
def alter_good_and_bad_together(t):
    topic = t.topic()
    alter(t, topic, ("retention.ms", SET, "1000"), ("segment.ms", SET, "soon"))
    seen(t, topic, "retention.ms")


@case
def alter_only_validated(t):
    topic = t.topic()
    alter(t, topic, ("retention.ms", SET, "1000"), validate=True)
    alter(t, topic, ("retention.ms", SET, "soon"), validate=True)
    seen(t, topic, "retention.ms")


@case
def alter_an_unknown_topic(t):
    alter(t, t.unique("topic"), ("retention.ms", SET, "1000"))


@case
def alter_an_invalid_topic_name(t):
    alter(t, "a b", ("retention.ms", SET, "1000"))


@case
def alter_an_empty_topic_name(t):
    alter(t, "", ("retention.ms", SET, "1000"))


@case
def alter_an_unknown_broker(t):
    alter(t, "4242", ("log.cleaner.threads", SET, "1"), kind=BROKER)


@case
def alter_deletes_settings_of_a_broker(t):
    for name in ("", "1"):
        alter(t, name, ("leader.replication.throttled.rate", DELETE, None), ("follower.replication.throttled.rate", DELETE, None), kind=BROKER)
        alter(t, name, ("no.such.setting", DELETE, None), kind=BROKER)
        alter(t, name, ("broker.id", DELETE, None), kind=BROKER)
        alter(t, name, ("log.retention.ms", DELETE, None), ("broker.id", SET, "5"), kind=BROKER)
    alter(t, "4242", ("log.retention.ms", DELETE, None), kind=BROKER)
    alter(t, "one", ("log.retention.ms", DELETE, None), kind=BROKER)


@case
def alter_a_resource_of_no_kind(t):
    alter(t, "x", ("retention.ms", SET, "1000"), kind=0)
    alter(t, "x", ("retention.ms", SET, "1000"), kind=99)


@case
def alter_one_topic_twice_in_a_request(t):
    one = {"resource_type": TOPIC, "resource_name": t.topic(), "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]}
    t.ask("IncrementalAlterConfigs", 1, {"resources": [one, one], "validate_only": False})


@case
def alter_nothing(t):
    alter(t, t.topic())
    t.ask("IncrementalAlterConfigs", 1, {"resources": [], "validate_only": False})


@case
def replace_all_settings(t):
    topic = t.topic(segment_ms=60_000)
    one = {"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "retention.ms", "value": "1000"}]}
    for version in range(3):
        t.ask("AlterConfigs", version, {"resources": [one], "validate_only": False})
    seen(t, topic, "retention.ms", "segment.ms")


@case
def replace_with_bad_settings(t):
    for name, value in (("no.such.setting", "1"), ("retention.ms", "soon"), ("retention.ms", None)):
        one = {"resource_type": TOPIC, "resource_name": t.topic(), "configs": [{"name": name, "value": value}]}
        t.ask("AlterConfigs", 2, {"resources": [one], "validate_only": False})


@case
def replace_settings_of_an_unknown_topic(t):
    one = {"resource_type": TOPIC, "resource_name": t.unique("topic"), "configs": []}
    t.ask("AlterConfigs", 2, {"resources": [one], "validate_only": False})


@case
def config_resources_of_an_unknown_kind(t):
    t.ask("ListConfigResources", 1, {"resource_types": [99]})


@case
def config_resources_of_brokers(t):
    answer = t.quiet("ListConfigResources", 1, {"resource_types": [BROKER]})
    t.note(error_code=answer["error_code"], kinds=[one["resource_type"] for one in answer["config_resources"]])


@case
def config_resources_in_version_0(t):
    t.ask("ListConfigResources", 0, {})


def live(t, *keys):
    """What the broker's settings have become, for the node and for all; asked until two looks agree."""
    def look():
        found = {}
        for name in ("1", ""):
            one = {"resource_type": BROKER, "resource_name": name, "configuration_keys": list(keys)}
            rows = t.quiet("DescribeConfigs", 4, {"resources": [one], "include_synonyms": True})["results"][0]["configs"]
            for row in rows:
                # Defaults differ with how a broker is started.
                synonyms = [f"{one['name']}={one['value']} from {one['source']}" for one in row["synonyms"] if one["source"] < 4]
                found[f"{row['name']} of {name or 'all'}"] = [row["value"] if row["config_source"] < 4 else "as started", row["config_source"] < 4, row["read_only"], synonyms]
        return found
    before = look()
    for _ in range(20):
        time.sleep(0.05)
        before, last = look(), before
        if before == last:
            break
    t.note(settings=before)


def replace_broker(t, name, settings, validate=False):
    configs = [{"name": key, "value": value} for key, value in settings.items()]
    one = {"resource_type": BROKER, "resource_name": name, "configs": configs}
    t.ask("AlterConfigs", 2, {"resources": [one], "validate_only": validate})


@case
def alter_settings_of_the_node_and_of_all(t):
    key = "message.max.bytes"
    alter(t, "", (key, SET, "3000000"), kind=BROKER)
    live(t, key)
    alter(t, "1", (key, SET, "2000000"), kind=BROKER)
    live(t, key)
    alter(t, "1", (key, DELETE, None), kind=BROKER)
    live(t, key)
    alter(t, "", (key, DELETE, None), kind=BROKER)
    live(t, key)


@case
def alter_settings_of_a_broker_in_force_for_topics(t):
    topic = t.topic()
    alter(t, "", ("log.cleaner.delete.retention.ms", SET, "3600000"), kind=BROKER)
    seen(t, topic, "delete.retention.ms")
    alter(t, "", ("log.cleaner.delete.retention.ms", DELETE, None), kind=BROKER)
    seen(t, topic, "delete.retention.ms")


@case
def alter_settings_of_a_broker_only_validated(t):
    for name in ("", "1"):
        alter(t, name, ("message.max.bytes", SET, "3000000"), kind=BROKER, validate=True)
        alter(t, name, ("message.max.bytes", SET, "many"), kind=BROKER, validate=True)
    live(t, "message.max.bytes")


@case
def alter_settings_of_a_broker_that_count_from_the_start(t):
    for name in ("", "1"):
        for setting in ("listeners", "log.dirs", "node.id", "socket.request.max.bytes", "offset.metadata.max.bytes"):
            if (name, setting) != ("1", "listeners"):
                alter(t, name, (setting, SET, "7"), kind=BROKER, validate=True)
        alter(t, name, ("message.max.bytes", SET, "3000000"), ("node.id", SET, "7"), kind=BROKER)
    live(t, "message.max.bytes")


@case
def alter_words_of_a_broker(t):
    key = "log.cleanup.policy"
    alter(t, "", (key, APPEND, "compact"), kind=BROKER)
    live(t, key)
    alter(t, "", (key, APPEND, "compact"), kind=BROKER)
    alter(t, "", (key, SUBTRACT, "compact"), kind=BROKER)
    live(t, key)
    alter(t, "", (key, DELETE, None), kind=BROKER)
    for setting in ("message.max.bytes", "no.such.setting"):
        alter(t, "", (setting, APPEND, "7"), kind=BROKER)
        alter(t, "1", (setting, SUBTRACT, "7"), kind=BROKER)
    live(t, key)


@case
def alter_settings_of_a_broker_to_what_is_no_value(t):
    alter(t, "1", ("message.max.bytes", SET, None), kind=BROKER)
    alter(t, "1", ("message.max.bytes", SET, ""), kind=BROKER)
    alter(t, "1", ("message.max.bytes", SET, "1000000"), ("message.max.bytes", SET, "2000000"), kind=BROKER)
    alter(t, "1", ("message.max.bytes", 9, "1000000"), kind=BROKER)
    alter(t, "", kind=BROKER)
    live(t, "message.max.bytes")


@case
def alter_one_broker_twice_in_a_request(t):
    one = {"resource_type": BROKER, "resource_name": "1", "configs": [{"name": "message.max.bytes", "config_operation": 0, "value": "1000000"}]}
    t.ask("IncrementalAlterConfigs", 1, {"resources": [one, one], "validate_only": False})
    t.ask("IncrementalAlterConfigs", 1, {"resources": [one, {**one, "resource_name": ""}], "validate_only": True})


@case
def replace_settings_of_a_broker(t):
    replace_broker(t, "", {"message.max.bytes": "3000000", "log.retention.bytes": "5000000000"})
    live(t, "message.max.bytes", "log.retention.bytes")
    replace_broker(t, "", {"log.retention.bytes": "4000000000"}, validate=True)
    live(t, "message.max.bytes", "log.retention.bytes")
    replace_broker(t, "", {"log.retention.bytes": "4000000000"})
    live(t, "message.max.bytes", "log.retention.bytes")
    replace_broker(t, "", {})
    live(t, "message.max.bytes", "log.retention.bytes")
    replace_broker(t, "4242", {"log.retention.bytes": "4000000000"})
    replace_broker(t, "one", {})


@case
def replace_with_bad_settings_of_a_broker(t):
    for name in ("", "1"):
        for setting, value in (("message.max.bytes", "many"), ("message.max.bytes", None), ("node.id", "7")):
            replace_broker(t, name, {setting: value}, validate=True)


@case
def configs_of_a_broker_by_key(t):
    for version in range(1, 5):
        answer = t.quiet("DescribeConfigs", version, {"resources": [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": ["message.max.bytes", "listeners"]}]})
        rows = answer["results"][0]["configs"]
        t.note(version=version, rows={row["name"]: row["read_only"] for row in rows})
