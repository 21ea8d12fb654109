"""One queue, two faces: members of a Kafka share group (franz-go) and AMQP clients (pika) see of each other what they have, and the queue's
rules are those of both. Arguments: the binary, the franz-go program. Prints `ok NAME` or `failed NAME: WHY`, a line a case."""

import json
import signal
import sys
import tempfile
import time
import traceback
import urllib.parse
import urllib.request
from base64 import b64encode
from pathlib import Path

import pika
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

HERE = Path(__file__).resolve().parent
for folder in ("..", "../share", "../peers"):
    sys.path.insert(0, str((HERE / folder).resolve()))
from client import Connection
from driver.broker import Broker
from group import Members, configure, create, flags, lags

# The name under which share groups know the subscription of a queue that names no other.
GROUP = "amqp.queue"
LOCK_MS = 1000
PATIENCE = 20
POLICY_VIOLATION = 44


def management(broker, method, path, body=None):
    """What management answers, decoded."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{broker.admin}/api/{path}", data, method=method)
    request.add_header("authorization", "Basic " + b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read() or b"null")


def queue(broker, name):
    return management(broker, "GET", f"queues/%2F/{urllib.parse.quote(name)}")


def messages(broker, name):
    """(ready, unacknowledged) of a queue."""
    found = queue(broker, name)
    return found["messages_ready"], found["messages_unacknowledged"]


def parameters(broker):
    host, port = broker.amqp.rsplit(":", 1)
    return pika.ConnectionParameters(host, int(port))


def comes(what, wanted, look):
    """Waits until `look()` is what is wanted."""
    until = time.time() + PATIENCE
    while (found := look()) != wanted:
        assert time.time() < until, f"{what}: {found} instead of {wanted}"
        time.sleep(0.05)


class Case:
    """A broker, a channel with confirms, and processes of members."""

    def __init__(self, broker, folder, name):
        self.broker, self.folder, self.name = broker, Path(tempfile.mkdtemp(dir=folder)), name
        self.channel = self.connect()
        self.members = []

    def connect(self):
        channel = pika.BlockingConnection(parameters(self.broker)).channel()
        channel.confirm_delivery()
        return channel

    def declare(self, **arguments):
        self.channel.queue_declare(self.name, durable=True, arguments={name.replace("_", "-"): value for name, value in arguments.items()})

    def publish(self, count, first=0):
        for number in range(first, first + count):
            self.channel.basic_publish("", self.name, str(number).encode(), pika.BasicProperties(delivery_mode=2))

    def member(self, kind, group=GROUP):
        members = Members(self.folder, group, self.name, LOCK_MS)
        self.members.append(members)
        members.start(self.broker.bootstrap, f"{kind}-{len(self.members)}", "franz-go", kind, 1)
        return members

    def deliveries(self):
        """Delivery counts that members have told, by message."""
        found = {}
        for path in (path for members in self.members for path in members.files):
            for line in path.read_text(errors="replace").splitlines(keepends=True):
                words = line.split()
                if line.endswith("\n") and words[1] == "got":
                    found.setdefault(words[-1], []).append(int(words[4]))
        return found

    def lag(self, group=GROUP):
        return lags(self.broker.bootstrap, group, self.name, 1)[0]

    def dead_letters(self):
        """A queue of dead letters with an exchange of its own; its name."""
        name = f"{self.name}-dead"
        self.channel.exchange_declare(name, "fanout")
        self.channel.queue_declare(name, durable=True)
        self.channel.queue_bind(name, name)
        return name

    def dead(self, name, count):
        """(body, reason) of dead letters, when there are so many."""
        comes("dead letters", (count, 0), lambda: messages(self.broker, name))
        found = [self.channel.basic_get(name, auto_ack=True) for _ in range(count)]
        return sorted((body.decode(), properties.headers["x-death"][0]["reason"]) for _, properties, body in found)

    def end(self):
        for members in self.members:
            members.end(signal.SIGKILL)
        self.channel.connection.close()


def each_face_sees_what_the_other_has(case):
    """What AMQP consumers have is in Kafka's lag and not given to members; what members have is unacknowledged for management."""
    case.declare(x_queue_type="quorum")
    case.publish(20)
    consumer, tags = case.connect(), []
    consumer.basic_qos(prefetch_count=5)
    consumer.basic_consume(case.name, lambda _c, method, _p, _b: tags.append(method.delivery_tag))
    while len(tags) < 5:
        consumer.connection.process_data_events(0.1)
    comes("what management sees of an AMQP consumer's", (15, 5), lambda: messages(case.broker, case.name))
    comes("what Kafka sees of it", 20, case.lag)
    case.member("holds")
    comes("what management sees of a member's", (0, 20), lambda: messages(case.broker, case.name))
    assert case.lag() == 20, case.lag()
    consumer.basic_ack(tags[-1], multiple=True)
    # More than it may have comes only of what the member gives back, by its time-out.
    comes("what Kafka sees of acknowledgements", 15, case.lag)
    while len(tags) < 10:
        consumer.connection.process_data_events(0.1)
    counts = queue(case.broker, case.name)["message_stats"]
    assert counts["redeliver"] >= 5 and counts["ack"] == 5, counts
    consumer.connection.close()


def a_time_out_counts_as_a_return(case):
    """The limit and the dead-letter exchange are the queue's, not the group's."""
    dead = case.dead_letters()
    case.declare(x_queue_type="quorum", x_delivery_limit=2, x_dead_letter_exchange=dead)
    case.publish(3)
    case.member("holds")
    assert case.dead(dead, 3) == [(str(number), "delivery_limit") for number in range(3)]
    assert case.deliveries() == {str(number): [1, 2, 3] for number in range(3)}, case.deliveries()
    comes("what is left for Kafka", 0, case.lag)
    found = queue(case.broker, case.name)["message_stats"]
    assert (found["deliver_get"], found["redeliver"], found["ack"]) == (9, 6, 0), found


def what_a_member_releases_counts(case):
    dead = case.dead_letters()
    case.declare(x_queue_type="quorum", x_delivery_limit=6, x_dead_letter_exchange=dead)
    case.publish(3)
    case.member("releases")
    assert case.dead(dead, 3) == [(str(number), "delivery_limit") for number in range(3)]
    assert case.deliveries() == {str(number): [1, 2, 3, 4, 5, 6, 7] for number in range(3)}, case.deliveries()


def a_classic_queue_has_no_limit_for_members(case):
    case.declare()
    case.publish(1)
    case.member("releases")
    until = time.time() + PATIENCE
    while len(case.deliveries().get("0", [])) < 12:
        assert time.time() < until, case.deliveries()
        time.sleep(0.05)


def what_a_member_rejects_is_a_dead_letter(case):
    dead = case.dead_letters()
    case.declare(x_dead_letter_exchange=dead)
    case.publish(5)
    case.member("rejects")
    assert case.dead(dead, 5) == [(str(number), "rejected") for number in range(5)]
    comes("what is left", (0, 0), lambda: messages(case.broker, case.name))


def what_members_have_done_is_trimmed(case):
    """Nobody consumes through AMQP: the log gets shorter all the same."""
    case.declare()
    case.publish(50)
    case.member("keys")
    comes("what is left for Kafka", 0, case.lag)
    admin = AdminClient({"bootstrap.servers": case.broker.bootstrap})
    place = TopicPartition(case.name, 0)
    comes("the first offset", 50, lambda: admin.list_offsets({place: OffsetSpec.earliest()})[place].result(10).offset)
    found = queue(case.broker, case.name)["message_stats"]
    assert (found["deliver_get"], found["ack"], found["redeliver"]) == (50, 50, 0), found


def refused(case, channel, **wish):
    arguments = {name.replace("_", "-"): value for name, value in wish.pop("arguments").items()}
    try:
        channel.queue_declare(arguments=arguments, **wish)
    except pika.exceptions.ChannelClosedByBroker as closed:
        assert closed.reply_code == 406, closed
        return
    raise AssertionError(f"{wish} with {arguments} is taken")


def a_queue_names_its_share_group(case):
    """Another group has no part in it. What it has done is done after a kill of the broker, and stays done when the group is deleted."""
    case.declare(x_share_group="workers")
    for wish in ({"queue": case.name, "durable": True, "arguments": {}}, {"queue": case.name, "durable": True, "arguments": {"x_share_group": "others"}},
                 {"queue": "own", "exclusive": True, "arguments": {"x_share_group": "workers"}},
                 {"queue": "stream", "durable": True, "arguments": {"x_queue_type": "stream", "x_share_group": "workers"}},
                 {"queue": "empty", "durable": True, "arguments": {"x_share_group": ""}}):
        refused(case, case.connect(), **wish)
    case.publish(10)
    assert (case.lag("workers"), case.lag()) == (10, None), (case.lag("workers"), case.lag())
    members = case.member("keys", "workers")
    comes("what is left for its group", 0, lambda: case.lag("workers"))
    members.end(signal.SIGTERM)
    case.publish(5, 10)
    assert (case.lag("workers"), messages(case.broker, case.name)) == (5, (5, 0))
    for name, fields in (("AlterShareGroupOffsets", {"partitions": [{"partition_index": 0, "start_offset": 0}]}), ("DeleteShareGroupOffsets", {})):
        host, port = case.broker.bootstrap.rsplit(":", 1)
        connection = Connection((host, int(port)))
        connection.request(name, 0, {"group_id": "workers", "topics": [{"topic_name": case.name, **fields}]})
        answer = connection.response(name, 0)
        connection.close()
        one = answer["responses"][0]
        code = (one["partitions"][0] if "partitions" in one else one)["error_code"]
        assert (answer["error_code"], code) == (0, POLICY_VIOLATION), answer
    admin = AdminClient({"bootstrap.servers": case.broker.bootstrap})
    admin.delete_consumer_groups(["workers"])["workers"].result(20)
    bodies = [case.channel.basic_get(case.name, auto_ack=True)[2].decode() for _ in range(3)]
    assert bodies == ["10", "11", "12"], bodies
    # An acknowledgement is durable 50 ms after it arrived.
    time.sleep(0.3)


def a_queue_over_a_topic_begins_where_its_group_does(case):
    """With the first record of the topic; where its group has a start there, with that one: what the group has done is done."""
    producer = Producer({"bootstrap.servers": case.broker.bootstrap})
    for topic, start in ((f"{case.name}-from-the-first", None), (case.name, 4)):
        create(case.broker.bootstrap, {topic: 1})
        for number in range(10):
            producer.produce(topic, str(number).encode())
        assert producer.flush(PATIENCE) == 0
        group = f"group of {topic}"
        if start is not None:
            host, port = case.broker.bootstrap.rsplit(":", 1)
            connection = Connection((host, int(port)))
            partitions = [{"partition_index": 0, "start_offset": start}]
            connection.request("AlterShareGroupOffsets", 0, {"group_id": group, "topics": [{"topic_name": topic, "partitions": partitions}]})
            answer = connection.response("AlterShareGroupOffsets", 0)
            connection.close()
            assert answer["error_code"] == answer["responses"][0]["partitions"][0]["error_code"] == 0, answer
        declared = case.channel.queue_declare(topic, durable=True, arguments={"x-share-group": group})
        bodies = [case.channel.basic_get(topic, auto_ack=True)[2] for _ in range(2)]
        first = start or 0
        assert (declared.method.message_count, bodies) == (10 - first, [b"%d" % first, b"%d" % (first + 1)]), (topic, declared, bodies)


def restarted(case):
    """Behind a kill −9 of the broker."""
    assert (case.lag("workers"), messages(case.broker, case.name)) == (2, (2, 0)), (case.lag("workers"), messages(case.broker, case.name))
    case.member("keys", "workers")
    comes("what is left", (0, 0), lambda: messages(case.broker, case.name))
    assert sorted(case.deliveries()) == ["13", "14"], case.deliveries()


CASES = [each_face_sees_what_the_other_has, a_time_out_counts_as_a_return, what_a_member_releases_counts, a_classic_queue_has_no_limit_for_members,
         what_a_member_rejects_is_a_dead_letter, what_members_have_done_is_trimmed, a_queue_names_its_share_group, a_queue_over_a_topic_begins_where_its_group_does]


def judged(work, case):
    name = work.__name__.replace("_", "-")
    try:
        work(case)
        print(f"ok {name}", flush=True)
    except Exception as failure:
        traceback.print_exc()
        print(f"failed {name}: {failure or type(failure).__name__}".replace("\n", " "), flush=True)
    finally:
        case.end()


def main(binary):
    with tempfile.TemporaryDirectory(prefix="mainstem-amqp-") as scratch:
        broker = Broker(binary, f"{scratch}/data", flags()).start()
        try:
            # The group's limit would be less than queues have.
            configure(broker.bootstrap, GROUP, share_record_lock_duration_ms=LOCK_MS, share_delivery_count_limit=2)
            for work in CASES:
                judged(work, Case(broker, scratch, work.__name__))
            broker.end(signal.SIGKILL)
            broker.start()
            judged(restarted, Case(broker, scratch, a_queue_names_its_share_group.__name__))
        finally:
            broker.end(9)


if __name__ == "__main__":
    main(sys.argv[1])
