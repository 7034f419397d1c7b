"""The programs of client/examples run as the documents say."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch")

_ROOT = pathlib.Path(__file__).parents[2]


def run(*command):
    result = subprocess.run(
        [str(part) for part in command], env=environment(), capture_output=True, text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def environment():
    return {
        **os.environ,
        "PYTHONPATH": os.fspath(_ROOT / "client" / "python"),
        # docs/operating/resuming.md says why.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def example(name):
    return _ROOT / "client" / "examples" / name


def test_train_goes_on_where_it_ended(scratch):
    train = [sys.executable, example("train.py"), "--state-dir"]
    whole = run(*train, scratch / "whole", "--steps", 150)
    run(*train, scratch / "parts", "--steps", 75)
    rest = run(*train, scratch / "parts", "--steps", 150)
    assert rest == ["resumed after step 75", *whole[1:]]


def test_a_run_goes_to_momentd_and_back(scratch):
    lines = run(sys.executable, example("to_torch_and_back.py"), "--state-dir", scratch / "state")
    stages = 4 * ["torch"] + 4 * ["momentd"] + 4 * ["torch"]
    assert [line.split()[1] for line in lines[1:13]] == stages
    assert lines[-1].endswith(": equal bit for bit")


_TORCHRUN = [
    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"
]


@pytest.mark.parametrize("name", ["train_fsdp.py", "train_zero.py"])
def test_ranks_go_on_where_they_ended(name, scratch):
    import momentd

    with momentd.spawn(scratch / "whole") as daemon:
        whole = run(*_TORCHRUN, example(name), "--socket", daemon.socket, "--steps", 100)
    with momentd.spawn(scratch / "parts") as daemon:
        run(*_TORCHRUN, example(name), "--socket", daemon.socket, "--steps", 40)
        rest = run(*_TORCHRUN, example(name), "--socket", daemon.socket, "--steps", 100)
    assert rest == ["resumed after step 40", *whole]


def test_torchrun_restarts_what_was_killed(scratch, daemon):
    """kill -9 of a rank, at the first line that the job prints."""
    command = [*_TORCHRUN, "--max-restarts", "3", os.fspath(example("train_fsdp.py")),
               "--socket", daemon.socket, "--steps", "300"]
    log = open(scratch / "torchrun", "w")
    job = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
    )
    lines = [job.stdout.readline().strip()]
    ranks = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(ranks[1]), signal.SIGKILL)
    lines += job.stdout.read().splitlines()
    assert job.wait() == 0, [*lines, (scratch / "torchrun").read_text()]
    (resumed,) = [line for line in lines if line.startswith("resumed after step")]
    assert 49 <= int(resumed.split()[-1]) < 300
    losses = {}
    for line in lines:
        if line.startswith("step"):
            assert losses.setdefault(line.split()[1], line) == line
    assert list(losses) == ["50", "100", "150", "200", "250", "300"]
