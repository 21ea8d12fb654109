"""Creates topics: `topics.py BOOTSTRAP NAME=PARTITIONS[,SETTING=VALUE ...] ...`."""

import sys

from confluent_kafka.admin import AdminClient, NewTopic


def topic(argument):
    first, *settings = argument.split(",")
    name, count = first.split("=")
    return NewTopic(name, int(count), 1, config=dict(setting.split("=") for setting in settings))


admin = AdminClient({"bootstrap.servers": sys.argv[1]})
for future in admin.create_topics([topic(argument) for argument in sys.argv[2:]]).values():
    future.result(30)
