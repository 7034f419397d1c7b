"""kill -9 of the trainer and of the daemon at random moments: every reopening stands at a commit, at
most one answered step is lost, and the finished run equals the undisturbed one bit for bit."""

import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

import momentd

KILLS = 20
TRAINER = pathlib.Path(__file__).with_name("kill_trainer.py")


class Log:
    """What a trainer wrote so far."""

    def __init__(self, path):
        self.path = path
        path.touch()

    def lines(self):
        return [line.split() for line in self.path.read_text().splitlines(keepends=True)
                if line.endswith("\n")]

    def losses(self):
        """Loss by step; a step that was run again must have had the same one."""
        losses = {}
        for first, value in self.lines():
            if first.isdigit():
                assert losses.setdefault(int(first), value) == value, f"step {first} differs"
        return losses

    def final(self):
        return [value for first, value in self.lines() if first == "final"]

    def steps(self):
        return max(self.losses(), default=0)


def start_trainer(socket, job, log, steps):
    package = pathlib.Path(momentd.__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, os.fspath(TRAINER), "--socket", socket, "--job", job,
         "--log", os.fspath(log.path), "--steps", str(steps)],
        env={**os.environ, "PYTHONPATH": os.fspath(package)})


def start_daemon(directory):
    return momentd.spawn(directory / "state", socket_dir=directory / "run",
                         log=directory / "daemon.log")


def await_steps(log, count, process):
    """Until the log has this many steps, or the trainer has ended."""
    deadline = time.monotonic() + 120
    while log.steps() < count and process.poll() is None:
        assert time.monotonic() < deadline, f"no step {count}: {log.lines()[-3:]}"
        time.sleep(0.002)


def undisturbed(daemon, directory, steps):
    log = Log(directory / "undisturbed.log")
    assert start_trainer(daemon.socket, "undisturbed", log, steps).wait(300) == 0
    return log


@pytest.fixture
def directory(scratch):
    (scratch / "run").mkdir(mode=0o750)
    return scratch


@pytest.fixture
def chance():
    seed = int(os.environ.get("MOMENT_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"MOMENT_TEST_SEED={seed}")
    return random.Random(seed)


def check_equal(log, expected):
    """A step whose answer came too late for its line to be written is known by the resume at it."""
    resumed_at = {int(value) for first, value in log.lines() if first == "resumed"}
    missing = expected.losses().keys() - log.losses().keys()
    assert missing <= resumed_at
    assert log.losses().items() <= expected.losses().items()
    assert log.final() == expected.final() and log.final()


def test_killed_trainer_loses_no_answered_step(directory, chance):
    steps = 10 * KILLS
    with start_daemon(directory) as daemon:
        expected = undisturbed(daemon, directory, steps)
        log = Log(directory / "killed.log")
        for _ in range(KILLS):
            trainer = start_trainer(daemon.socket, "killed", log, steps)
            await_steps(log, log.steps() + chance.randrange(1, 8), trainer)
            time.sleep(chance.uniform(0, 0.03))
            trainer.kill()
            trainer.wait()
        assert start_trainer(daemon.socket, "killed", log, steps).wait(300) == 0
    check_equal(log, expected)
    answered = 0
    for first, value in log.lines():
        if first == "resumed":
            assert int(value) >= answered, "a step that was answered is lost"
        elif first.isdigit():
            answered = int(first)


def test_killed_daemon_loses_at_most_one_answered_step(directory, chance):
    steps = 10 * KILLS
    daemon = start_daemon(directory)
    try:
        expected = undisturbed(daemon, directory, steps)
        log = Log(directory / "survivor.log")
        trainer = start_trainer(daemon.socket, "survivor", log, steps)
        for _ in range(KILLS):
            await_steps(log, log.steps() + chance.randrange(1, 8), trainer)
            time.sleep(chance.uniform(0, 0.03))
            daemon.process.kill()
            daemon.process.wait()
            daemon = start_daemon(directory)
        assert trainer.wait(300) == 0
    finally:
        daemon.close()
    check_equal(log, expected)
    answered = 0
    for first, value in log.lines():
        if first == "rewound":
            assert answered - int(value) <= 1, "more than one answered step is lost"
            answered = int(value)
        elif first.isdigit():
            answered = int(first)
