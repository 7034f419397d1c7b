"""The memory of the trainer, by the program that docs/reference/torch.md has its table from."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

_ROOT = pathlib.Path(__file__).parents[2]
_PROGRAM = _ROOT / "tests" / "bench" / "trainer_memory.py"
_PARAMETERS = 1 << 25


def bytes_by_row(scratch):
    """{row: ((own, ring, file) with torch, the same with momentd)}, in bytes a parameter."""
    command = [sys.executable, _PROGRAM, "--parameters", str(_PARAMETERS), "--directory", scratch]
    environment = {**os.environ, "PYTHONPATH": os.fspath(_ROOT / "client" / "python")}
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    rows = {}
    for line in said.stdout.splitlines():
        found = re.fullmatch(r"(.{26})((?: +[0-9.]+){6})", line)
        if found:
            numbers = [float(number) for number in found[2].split()]
            rows[found[1].strip()] = numbers[:3], numbers[3:]
    return rows


def test_state_never_enters_the_trainers_own_memory(scratch):
    """Not in steps, nor while it is saved, nor while a saved one is loaded; torch's is there all the
    time, which shows that the measure sees it."""
    rows = bytes_by_row(scratch)
    assert set(rows) == {
        "after two steps",
        "state_dict()",
        "torch.save",
        "after the save",
        "load_state_dict",
        "after the load and a step",
    }
    ring = (64 << 20) / _PARAMETERS
    for name, (torchs, ours) in rows.items():
        assert torchs[0] > 7.5 or "load" in name, name
        assert ours[0] < 0.5, name
        assert ours[1] < ring + 0.1, name
