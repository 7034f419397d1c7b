"""Trainers that are killed, and a GPU that is lost under them: memory comes back within two seconds,
nobody else notices, and no answered step is lost."""

import os
import pathlib
import queue
import random
import subprocess
import sys
import threading
import time

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if "MOMENTD_BINARY" not in os.environ:
    pytest.skip("MOMENTD_BINARY does not name the daemon", allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import momentd

TRAINER = pathlib.Path(__file__).with_name("gpu_trainer.py")
MIB = 1 << 20
# 128 MiB of parameters and as much of gradients, in bf16: far above what contexts vary by.
LARGE = 64 * MIB
SMALL = 1_000_003
RELEASED_WITHIN_S = 2.0
TOLERANCE = 48 * MIB
GPU_LOST = 8


def used_bytes():
    """Of the whole GPU, by everyone."""
    free, total = torch.cuda.mem_get_info()
    return total - free


class Trainer:
    """A process of gpu_trainer.py; its lines come by a thread."""

    def __init__(self, socket, job, steps, elements, interval=0):
        self.process = subprocess.Popen(
            [sys.executable, TRAINER, "--socket", socket, "--job", job, "--steps", str(steps),
             "--elements", str(elements), "--interval", str(interval)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = []
        self.errors = ""
        self.lines = queue.Queue()
        self.threads = [threading.Thread(target=self._read), threading.Thread(target=self._drain)]
        for thread in self.threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.split())
        self.lines.put(None)

    def _drain(self):
        self.errors = self.process.stderr.read()

    def await_line(self, word, number=None, timeout=120):
        """The number of the next line with this word (and, if given, at least this number)."""
        deadline = time.monotonic() + timeout
        while True:
            line = self.lines.get(timeout=max(deadline - time.monotonic(), 0.001))
            if line is None:
                pytest.fail(f"the trainer ended before it said {word}: {self.said[-3:]} "
                            f"{self.errors[-2000:]}")
            self.said.append(line)
            if line[0] == word and (number is None or int(line[1]) >= number):
                return line[1]

    def rest(self):
        """What was said until the end, all in all."""
        while (line := self.lines.get(timeout=300)) is not None:
            self.said.append(line)
        return self.said

    def kill(self):
        self.process.kill()
        self.process.wait()

    def finish(self):
        """Its digest."""
        final = self.await_line("final", timeout=300)
        assert self.process.wait(60) == 0, self.errors
        return final


def start_daemon(directory, *arguments):
    return momentd.spawn(directory / "state", socket_dir=directory / "run",
                         log=directory / "daemon.log",
                         arguments=["--host-memory", "6GiB", *arguments])


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "run").mkdir(mode=0o750)
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    return tmp_path


@pytest.fixture
def chance():
    seed = int(os.environ.get("MOMENT_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"MOMENT_TEST_SEED={seed}")
    return random.Random(seed)


def await_used(limit, since):
    """Until no more than `limit` bytes are in use; the seconds since the kill."""
    while used_bytes() > limit:
        assert time.monotonic() - since < 30, f"{used_bytes() - limit} bytes too many stay in use"
        time.sleep(0.005)
    return time.monotonic() - since


def undisturbed(daemon, steps, elements):
    return Trainer(daemon.socket, f"undisturbed-{elements}", steps, elements).finish()


def kill_and_measure(trainer, limit):
    trainer.process.kill()
    since = time.monotonic()
    seconds = await_used(limit, since)
    trainer.process.wait()
    return seconds


def test_an_idle_trainer_that_is_killed_gives_its_memory_back(directory):
    with start_daemon(directory) as daemon:
        before = used_bytes()
        trainer = Trainer(daemon.socket, "idle", 3, LARGE)
        trainer.await_line("stepped", 3)
        assert used_bytes() > before + 256 * MIB, "the trainer's memory is not seen"
        seconds = kill_and_measure(trainer, before + TOLERANCE)
        print(f"memory back after {seconds:.2f} s")
        assert seconds < RELEASED_WITHIN_S


def test_trainers_killed_within_steps_hurt_nobody_and_lose_nothing(directory, chance):
    kills, steps, other_steps = 6, 24, 600
    with start_daemon(directory) as daemon:
        expected = undisturbed(daemon, steps, LARGE)
        expected_other = undisturbed(daemon, other_steps, SMALL)
        other = Trainer(daemon.socket, "other", other_steps, SMALL, interval=0.1)
        other.await_line("stepped", 1)
        before = used_bytes()
        answered, slowest, within_steps = 0, 0.0, 0
        for _ in range(kills):
            trainer = Trainer(daemon.socket, "killed", steps, LARGE)
            resumed = int(trainer.await_line("ready"))
            assert resumed >= answered, "a step that was answered is lost"
            if resumed >= steps - 4:
                trainer.kill()
                break
            trainer.await_line("stepping", resumed + chance.randrange(1, 4))
            time.sleep(chance.uniform(0, 0.02))
            slowest = max(slowest, kill_and_measure(trainer, before + TOLERANCE))
            said = trainer.rest()
            within_steps += said[-1][0] == "stepping"
            answered = max([answered, *(int(n) for word, n in said if word == "stepped")])
        print(f"slowest release {slowest:.2f} s; {within_steps} of {kills} killed within a step")
        assert slowest < RELEASED_WITHIN_S
        assert within_steps > 0, "no kill met a step"
        assert Trainer(daemon.socket, "killed", steps, LARGE).finish() == expected
        assert other.finish() == expected_other
        assert not any(word == "rewound" for word, _ in other.said)
    assert daemon.process.returncode == 0, (directory / "daemon.log").read_text()


@pytest.mark.parametrize("piece", [1, 5, 9])  # of about 12
def test_a_fault_of_the_gpu_ends_the_daemon_with_8_and_no_step_is_lost(directory, monkeypatch,
                                                                      piece):
    steps = 12
    with start_daemon(directory) as daemon:
        expected = undisturbed(daemon, steps, SMALL)
        # The store exists, so that the first piece of the next daemon is of a resume or a step.
        first = Trainer(daemon.socket, "lost", 2, SMALL)
        first.finish()
    monkeypatch.setenv("MOMENTD_FAILPOINTS", f"cuda.fault=error@{piece}")
    faulty = start_daemon(directory)
    monkeypatch.delenv("MOMENTD_FAILPOINTS")
    trainer = Trainer(faulty.socket, "lost", steps, SMALL)
    code = faulty.process.wait(120)
    log = (directory / "daemon.log").read_text()
    assert code == GPU_LOST, log
    assert "event=device_lost" in log
    with start_daemon(directory) as daemon:
        assert trainer.finish() == expected
        assert not any(word == "rewound" for word, _ in trainer.said), "no step was lost"
        answered = [int(n) for word, n in trainer.said if word == "stepped"]
        assert answered == list(range(3, steps + 1))
