"""The device is lost for the daemon's process, as a fault of a GPU makes it; here a failpoint takes
the processor away. Every applied step is committed, the daemon exits with 8, and the trainer goes on
with the next daemon."""

import threading

import pytest

import momentd
from bare_trainer import BareTrainer, undisturbed
from momentctl import momentctl

SHAPES = {"long": (1_000_003,), "short": (5,)}
GPU_LOST = 8


def spawn(scratch, monkeypatch, failpoints, name="first"):
    if failpoints:
        monkeypatch.setenv("MOMENTD_FAILPOINTS", failpoints)
    else:
        monkeypatch.delenv("MOMENTD_FAILPOINTS", raising=False)
    return momentd.spawn(scratch / "state", socket_dir=scratch / "run", log=scratch / name)


@pytest.mark.parametrize("commit_every", [1, 0])
def test_applied_steps_are_committed_and_the_trainer_goes_on(scratch, monkeypatch, commit_every):
    (scratch / "run").mkdir(mode=0o750)
    # Two buckets, so two chunks for the first filling and two for a step: the fifth step finds the
    # device lost at its second chunk.
    options = {"commit_every": commit_every, "bucket_elements": 1_000_003}
    first = spawn(scratch, monkeypatch, "device.lost=error@12")
    trainer = BareTrainer(first, SHAPES, **options).steps(4)
    ended = []

    def watch():
        ended.append(first.process.wait(60))
        store = momentctl("inspect", "bare/model/0", "--state-dir", scratch / "state")
        ended.append(max(commit["sequence"] for commit in store["commits"]))
        ended.append(spawn(scratch, monkeypatch, None, "second"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    trainer.step()  # its first run fails; it waits for the next daemon and is sent again
    watcher.join()
    code, committed, second = ended
    log = (scratch / "first").read_text()
    assert code == GPU_LOST, log
    assert "event=device_lost" in log
    assert committed == 4, "an applied step was not committed before the exit"
    with second:
        trainer.steps(2)
        assert trainer.sequence == 7
        trainer.close()
        assert trainer.bits() == undisturbed(second, SHAPES, 7, **options)


def test_other_stores_of_the_daemon_are_committed_too(scratch, monkeypatch):
    (scratch / "run").mkdir(mode=0o750)
    daemon = spawn(scratch, monkeypatch, "device.lost=error@5")
    idle = BareTrainer(daemon, SHAPES, job="idle", commit_every=0).steps(2)
    failing = BareTrainer(daemon, SHAPES, job="failing", connect_for_seconds=1, retry_for_seconds=1)
    with pytest.raises(momentd.Error):
        failing.step()
    assert daemon.process.wait(60) == GPU_LOST
    store = momentctl("inspect", "idle/model/0", "--state-dir", scratch / "state")
    assert max(commit["sequence"] for commit in store["commits"]) == 2
    for trainer in (idle, failing):
        try:
            trainer.close()
        except momentd.Error:
            pass
