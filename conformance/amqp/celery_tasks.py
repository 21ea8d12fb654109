"""Tasks of the Celery program beside this file. Environment: BROKER_URL; QUORUM for quorum queues, with which Celery delays tasks in queues of its
own instead of in the worker."""

import os

from celery import Celery

app = Celery("celery_tasks", broker=os.environ["BROKER_URL"], backend="rpc://")
app.conf.task_acks_late = True
app.conf.worker_prefetch_multiplier = 4
if os.environ.get("QUORUM"):
    app.conf.task_default_queue_type = "quorum"
    app.conf.task_default_queue = "celery-quorum"
    app.conf.task_default_exchange_type = "topic"
    app.conf.worker_detect_quorum_queues = True


@app.task
def add(one, other):
    return one + other


@app.task(bind=True, max_retries=3)
def succeeds_late(self, retries):
    if self.request.retries < retries:
        raise self.retry(countdown=1)
    return self.request.retries
