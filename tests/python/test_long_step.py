"""A step whose disk is slow: it waits for its predecessor's commit, and nothing else of the process
waits with it."""

import threading
import time

import pytest

from bare_trainer import BareTrainer, undisturbed

SHAPES = {"weight": (300, 100)}
SECONDS = 8


class Ticker(threading.Thread):
    """Notes the longest time between two of its turns."""

    def __init__(self):
        super().__init__()
        self.stopping = threading.Event()
        self.ticks, self.longest = 0, 0.0

    def run(self):
        last = time.monotonic()
        while not self.stopping.wait(0.01):
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            self.ticks += 1
            last = now

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *failure):
        self.stopping.set()
        self.join()


@pytest.mark.parametrize("caller", ["main thread", "another thread"])
def test_other_threads_run_during_one_long_step(other_daemon, monkeypatch, daemon, caller):
    # Commits: that of the first filling, of step 1, and of step 2, which step 3 waits for.
    monkeypatch.setenv("MOMENTD_FAILPOINTS", f"store.before_record=sleep:{SECONDS * 1000}@3")
    with other_daemon() as slow:
        trainer = BareTrainer(slow, SHAPES).steps(2)
        with Ticker() as ticker:
            start = time.monotonic()
            if caller == "main thread":
                trainer.step()
            else:
                thread = threading.Thread(target=trainer.step)
                thread.start()
                thread.join()
            seconds = time.monotonic() - start
        assert seconds > SECONDS / 2
        assert ticker.longest < seconds / 4
        assert ticker.ticks > 20
        trainer.close()
    assert trainer.bits() == undisturbed(daemon, SHAPES, 3)
