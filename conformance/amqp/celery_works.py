"""Celery as it is ordinarily used: a worker with a pool of processes, results by RPC, retries, tasks for later, remote control, events; with
classic queues, and with quorum queues and the 28 exchanges and queues through which Celery delays tasks then. Argument: HOST:PORT."""

import os
import signal
import subprocess
import sys
import threading
import time

PATIENCE = 40


def worker():
    command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-c", "2", "-E", "--loglevel=WARNING"]
    return subprocess.Popen(command, cwd=os.path.dirname(__file__), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def program():
    """In a process of its own: Celery reads the environment when the tasks are imported."""
    from celery_tasks import add, app, succeeds_late
    until = time.time() + PATIENCE
    while not app.control.ping(timeout=0.5):
        assert time.time() < until, "the worker does not answer"
    kinds = []
    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: kinds.append(event["type"])})
        listener = threading.Thread(target=lambda: list(receiver.itercapture(limit=None, timeout=3)), daemon=True)
        listener.start()
        assert add.delay(2, 3).get(timeout=PATIENCE) == 5
        assert sum(result.get(timeout=PATIENCE) for result in [add.delay(number, number) for number in range(200)]) == 39_800
        assert succeeds_late.delay(2).get(timeout=PATIENCE) == 2
        began = time.time()
        assert add.apply_async((1, 1), countdown=2).get(timeout=PATIENCE) == 2
        assert time.time() - began > 1.8, f"a task for later ran after {time.time() - began:.1f} s"
        stats = app.control.inspect(timeout=5).stats()
        assert stats and all(one["pool"]["max-concurrency"] == 2 for one in stats.values()), stats
        until = time.time() + 5
        while not {"task-received", "task-succeeded", "task-retried"} <= set(kinds):
            assert time.time() < until, f"events of these kinds only: {set(kinds)}"
            time.sleep(0.1)


def main(address):
    for name, more in (("classic queues", {}), ("quorum queues, delays in the broker", {"QUORUM": "1"})):
        os.environ.update(BROKER_URL=f"amqp://guest:guest@{address}//", PYTHONPATH=os.path.dirname(os.path.abspath(__file__)), **more)
        running = worker()
        try:
            subprocess.run([sys.executable, __file__, "--program"], check=True, timeout=3 * PATIENCE)
        finally:
            running.send_signal(signal.SIGTERM)
            complaints = running.communicate(timeout=30)[1]
        wrong = [line for line in complaints.splitlines() if "ERROR" in line or "CRITICAL" in line]
        assert not wrong, wrong[0]
        print(name)


if __name__ == "__main__":
    program() if sys.argv[1] == "--program" else main(sys.argv[1])
