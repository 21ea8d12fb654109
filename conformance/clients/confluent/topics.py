"""Creates topics: `topics.py BOOTSTRAP NAME=PARTITIONS ...`."""

import sys

from confluent_kafka.admin import AdminClient, NewTopic

admin = AdminClient({"bootstrap.servers": sys.argv[1]})
wanted = [argument.split("=") for argument in sys.argv[2:]]
for future in admin.create_topics([NewTopic(name, int(count), 1) for name, count in wanted]).values():
    future.result(30)
