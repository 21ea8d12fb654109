"""Transactions and confirms."""

from . import case, each


@case
def tx_select_after_confirm_select(t):
    t.send("confirm.select")
    t.send("tx.select")


@case
def confirm_select_after_tx_select(t):
    t.send("tx.select")
    t.send("confirm.select")


@case
def confirm_select_with_no_wait_after_tx_select(t):
    t.send("tx.select")
    t.send("confirm.select", no_wait=True)


@each(commit="tx.commit", rollback="tx.rollback")
def outside_a_transaction(t, method):
    t.send(method)


@each(tx="tx.select", confirm="confirm.select")
def select_twice(t, method):
    t.send(method)
    t.send(method)


@each(commit="tx.commit", rollback="tx.rollback")
def with_confirms(t, method):
    t.send("confirm.select")
    t.send(method)


@case
def tx_publish_to_no_exchange(t):
    t.send("tx.select")
    t.send("basic.publish", exchange="peer-nowhere", content=({}, b"x"))


@case
def tx_ack_of_an_unknown_tag(t):
    t.send("tx.select")
    t.send("basic.ack", delivery_tag=5)


@case
def tx_publish_and_rollback(t):
    queue = t.queue()
    t.send("tx.select")
    t.send("basic.publish", routing_key=queue, content=({}, b"x"))
    t.send("tx.rollback")
    t.send("tx.commit")
    t.send("queue.declare", queue=queue, passive=True)


@case
def tx_ack_rolled_back_and_again(t):
    t.consume(t.queue(messages=[b"one"]), count=1)
    t.send("tx.select")
    t.send("basic.ack", delivery_tag=1)
    t.send("tx.rollback")
    t.send("basic.ack", delivery_tag=1)
    t.send("tx.commit")


@case
def tx_ack_twice(t):
    t.consume(t.queue(messages=[b"one"]), count=1)
    t.send("tx.select")
    t.send("basic.ack", delivery_tag=1)
    t.send("basic.ack", delivery_tag=1)


@case
def tx_mandatory_to_nobody(t):
    t.send("tx.select")
    t.send("basic.publish", routing_key="peer-nowhere", mandatory=True, content=({}, b"x"))
    t.send("tx.commit", expect=2)


@each(ack="basic.ack", nack="basic.nack")
def confirms_of_the_client(t, method):
    """The client cannot confirm what the broker has not sent."""
    t.send("confirm.select")
    t.send(method, delivery_tag=1)
