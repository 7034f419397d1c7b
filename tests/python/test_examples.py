"""The programs of client/examples run as the documents say."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

_ROOT = pathlib.Path(__file__).parents[2]


def run(*command):
    environment = {**os.environ, "PYTHONPATH": os.fspath(_ROOT / "client" / "python")}
    result = subprocess.run(
        [str(part) for part in command], env=environment, capture_output=True, text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def example(name):
    return _ROOT / "client" / "examples" / name


def test_train_goes_on_where_it_ended(scratch):
    train = [sys.executable, example("train.py"), "--state-dir"]
    whole = run(*train, scratch / "whole", "--steps", 150)
    run(*train, scratch / "parts", "--steps", 75)
    rest = run(*train, scratch / "parts", "--steps", 150)
    assert rest == ["resumed after step 75", *whole[1:]]


@pytest.mark.parametrize("name", ["train_fsdp.py", "train_zero.py"])
def test_ranks_go_on_where_they_ended(name, scratch):
    import momentd

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    with momentd.spawn(scratch / "whole") as daemon:
        whole = run(*torchrun, example(name), "--socket", daemon.socket, "--steps", 100)
    with momentd.spawn(scratch / "parts") as daemon:
        run(*torchrun, example(name), "--socket", daemon.socket, "--steps", 40)
        rest = run(*torchrun, example(name), "--socket", daemon.socket, "--steps", 100)
    assert rest == ["resumed after step 40", *whole]
