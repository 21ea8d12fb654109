"""Dead letters are where they belong when a client looks for them right after the message died, with pika; arguments and output as those of
`cases.py`. Nothing here sleeps between the two."""

import time

import cases
from cases import case

cases.CASES.clear()
ROUNDS = 60
QUORUM = {"x-queue-type": "quorum"}


def work_and_grave(session, **arguments):
    """A queue, and the one where its dead letters go, by two exchanges."""
    first, second, grave = session.name(), session.name(), session.queue()
    for exchange in (first, second):
        session.channel.exchange_declare(exchange, "fanout", auto_delete=True)
    session.channel.exchange_bind(second, first)
    session.channel.queue_bind(grave, second)
    return session.queue({"x-dead-letter-exchange": first, **{name.replace("_", "-"): value for name, value in arguments.items()}}), grave


def take(session, queue, count=1):
    return [session.get(queue)[0].delivery_tag for _ in range(count)]


def rejected_and_found(session, work, grave):
    for number in range(ROUNDS):
        body = b"%d" % number
        session.publish(work, body)
        session.channel.basic_reject(take(session, work)[0], requeue=False)
        got = session.channel.basic_get(grave, auto_ack=True)
        assert got[2] == body, f"round {number}: {got}"
        assert got[1].headers["x-death"][0]["reason"] == "rejected", got[1].headers


@case
def the_next_get_finds_what_was_rejected(session):
    rejected_and_found(session, *work_and_grave(session))


@case
def the_next_get_finds_what_was_rejected_by_a_quorum_queue(session):
    grave = session.queue(QUORUM)
    work = session.queue({**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave})
    rejected_and_found(session, work, grave)


@case
def another_connection_finds_it(session):
    work, grave = work_and_grave(session)
    other = cases.Session(session.address)
    try:
        for number in range(ROUNDS):
            body = b"%d" % number
            session.publish(work, body)
            session.channel.basic_nack(take(session, work)[0], requeue=False)
            # Its answer says that the broker has seen the nack.
            session.channel.basic_qos(prefetch_count=1)
            got = other.channel.basic_get(grave, auto_ack=True)
            assert got[2] == body, f"round {number}: {got}"
    finally:
        other.connection.close()


@case
def counts_are_right_at_once(session):
    work, grave = work_and_grave(session)
    for number in range(ROUNDS // 3):
        session.publish(work, b"1", b"2", b"3")
        for tag in take(session, work, 3):
            session.channel.basic_reject(tag, requeue=False)
        ready = session.channel.queue_declare(grave, passive=True).method.message_count
        assert ready == 3, f"round {number}: {ready} instead of 3"
        session.publish(work, b"4")
        session.channel.basic_reject(take(session, work)[0], requeue=False)
        purged = session.channel.queue_purge(grave).method.message_count
        assert purged == 4, f"round {number}: {purged} instead of 4"
        session.publish(work, b"5", b"6")
        for tag in take(session, work, 2):
            session.channel.basic_nack(tag, requeue=False)
        left = session.channel.basic_get(grave, auto_ack=True)[0].message_count
        assert left == 1, f"round {number}: {left} instead of 1"
        session.channel.queue_purge(grave)


@case
def what_has_run_out_is_there_when_its_queue_has_said_that_it_is_empty(session):
    work, grave = work_and_grave(session, x_message_ttl=15)
    for number in range(20):
        session.publish(work, b"%d" % number)
        time.sleep(0.02)
        assert session.channel.basic_get(work)[0] is None
        got = session.channel.basic_get(grave, auto_ack=True)
        assert got[2] == b"%d" % number, f"round {number}: {got}"


@case
def what_found_no_room_when_it_came_back_is_there(session):
    work, grave = work_and_grave(session, x_max_length=1)
    session.channel.confirm_delivery()
    for number in range(ROUNDS // 2):
        session.publish(work, b"%d" % number)
        tag = take(session, work)[0]
        session.publish(work, b"later")
        session.channel.basic_nack(tag, requeue=True)
        got = session.channel.basic_get(grave, auto_ack=True)
        assert got[2] == b"%d" % number, f"round {number}: {got}"
        session.channel.queue_purge(work)


@case
def a_queue_where_no_letter_can_come_is_not_waited_for(session):
    """With letters on the way all the time, gets of another empty queue take what they always take."""
    work, grave = work_and_grave(session)
    bystander = session.queue()

    def time_of(gets, between):
        began = time.time()
        for _ in range(gets):
            between()
            assert session.channel.basic_get(bystander)[0] is None
        return time.time() - began

    def reject():
        session.channel.basic_reject(tags.pop(), requeue=False)

    # Something else of this machine may come between once, and again.
    longer = []
    for _ in range(3):
        session.publish(work, *[b"x"] * 200)
        tags = take(session, work, 200)
        longer.append(-time_of(200, lambda: None) + time_of(200, reject))
    assert min(longer) < 0.5, f"200 gets beside letters took longer by {longer} s"
    session.settled(grave, 600)


if __name__ == "__main__":
    cases.main(ours=[])
