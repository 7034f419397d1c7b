"""kill -9 of one of four ranks at each of 20 steps, and of the daemon: the launcher restarts the
job, every rank resumes, and losses, rates, scales, dropout masks and parameters are those of an
undisturbed run, bit for bit."""

import os
import random
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")

import momentd  # noqa: E402
from launcher import Job, run_ranks  # noqa: E402
from rank_trainer import BUILDERS, PHASES, train  # noqa: E402

RANKS = 4


@pytest.fixture
def chance():
    seed = int(os.environ.get("MOMENT_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"MOMENT_TEST_SEED={seed}")
    return random.Random(seed)


class Log:
    """What one rank wrote."""

    def __init__(self, path):
        self.lines = [line.split() for line in open(path).read().splitlines(keepends=True)
                      if line.endswith("\n")]

    def begins(self):
        return [int(line[1]) for line in self.lines if line[0] == "begin"]

    def steps(self):
        """What each step gave; one that was run again gave the same."""
        steps = {}
        for line in self.lines:
            if line[0] == "step":
                known = steps.setdefault(int(line[1]), line[2:])
                assert known == line[2:], f"step {line[1]} differs"
        return steps

    def final(self):
        return [line[1] for line in self.lines if line[0] == "final"]


def logs(base):
    return [Log(f"{base}.{rank}") for rank in range(RANKS)]


def check_equal(base, expected):
    begins = [log.begins() for log in logs(base)]
    for log, other in zip(logs(base), logs(expected)):
        steps = other.steps()
        for step, values in log.steps().items():
            assert values == steps[step], f"step {step}: {values} instead of {steps[step]}"
        assert log.final() == other.final() and len(log.final()) == 1
    return begins


def start_daemon(directory):
    return momentd.spawn(
        directory / "state", socket_dir=directory / "run", log=directory / "daemon.log"
    )


@pytest.mark.parametrize(
    "how, kills, commit_every",
    [("zero", range(20), 1), ("fsdp", range(20), 1), ("fsdp", range(2, 20, 3), 4)],
    ids=["zero", "fsdp", "fsdp, every fourth step committed"],
)
def test_a_rank_killed_at_each_step(how, kills, commit_every, scratch, daemon, chance):
    arguments = {"socket": daemon.socket, "connect_for": 30.0, "commit_every": commit_every}
    run_ranks(scratch, RANKS, train, scratch / "undisturbed", how,
              {**arguments, "job": "undisturbed"}, None)
    for kill in kills:
        step, phase = kill + 1, PHASES[(kill + kill // len(PHASES)) % len(PHASES)]
        death = (step, phase, chance.randrange(2**32))
        job = Job(scratch, RANKS, _train_and_die, kill % RANKS, scratch / "killed", how,
                  {**arguments, "job": "killed"}, death)
        results, well = job.wait()
        assert not well and job.processes[kill % RANKS].exitcode == -9, results
    run_ranks(scratch, RANKS, train, scratch / "killed", how, {**arguments, "job": "killed"}, None)
    begins = check_equal(scratch / "killed", scratch / "undisturbed")
    assert all(len(rank) == len(kills) + 1 and rank == begins[0] for rank in begins)
    for kill, begin in zip(kills, begins[0][1:]):
        lost = kill + 1 - begin
        assert 0 <= lost <= commit_every, f"killed in step {kill + 1}, resumed after step {begin}"


def _train_and_die(rank, victim, log, how, arguments, death):
    train(rank, log, how, arguments, death if rank == victim else None)


@pytest.mark.parametrize("how", BUILDERS)
def test_the_daemon_killed_under_all_ranks(how, scratch, chance):
    (scratch / "run").mkdir(mode=0o750)
    daemon = start_daemon(scratch)
    try:
        arguments = {"socket": daemon.socket, "connect_for": 30.0}
        run_ranks(scratch, RANKS, train, scratch / "undisturbed", how,
                  {**arguments, "job": "undisturbed"}, None)
        restarts, kills = 0, 0
        while True:
            job = Job(scratch, RANKS, train, scratch / "killed", how,
                      {**arguments, "job": "killed"}, None)
            while kills < 6 and _await_step(job, scratch / "killed.0", 3 * kills + 2):
                time.sleep(chance.uniform(0, 0.02))
                daemon.process.kill()
                daemon.process.wait()
                daemon = start_daemon(scratch)
                kills += 1
            results, well = job.wait()
            if well:
                break
            assert any("Rewound" in str(result) for result in results), results
            restarts += 1
            assert restarts < 20
    finally:
        daemon.close()
    assert kills == 6
    check_equal(scratch / "killed", scratch / "undisturbed")


def _await_step(job, log, step):
    """Whether the job got to this step; False if it ended before."""
    deadline = time.monotonic() + 60
    while all(process.is_alive() for process in job.processes):
        assert time.monotonic() < deadline
        if log.exists() and f"step {step} " in log.read_text():
            return True
        time.sleep(0.002)
    return False
