"""The examples of Hugging Face's Trainer, accelerate and Lightning: with momentd as with torch's
AdamW, and killed and resumed from the framework's own checkpoint as undisturbed. Losses of every
step and the final parameters are equal bit for bit.

MOMENT_FRAMEWORKS_TABLE names a file for the tables of docs/operating/frameworks.md.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from needs import needs

needs("torch", "transformers", "accelerate", "lightning")

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

_HERE = pathlib.Path(__file__).parent
_ROOT = _HERE.parents[1]
_STEPS = 12
_CHECKPOINT_EVERY = 4
_KILLED_AFTER = 7
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


class Framework:
    """How an example is started, and where its losses and final parameters are found."""

    def __init__(self, name, example, losses, parameters, launcher=(), options=(), unfinished=None):
        """unfinished: the folder that the second checkpoint is written in, left by a killed run."""
        self.name = name
        self._unfinished = unfinished
        self.losses = losses
        self.parameters = parameters
        self._command = [sys.executable, *launcher, _HERE / "run_example.py"]
        self._command.append(_ROOT / "client" / "examples" / f"train_{example}.py")
        self._options = options

    def run(self, output, *arguments, killed_after=0):
        """Returns {step: loss} of what this run, not one before it, has trained."""
        seen = len(self.losses(output)) if output.exists() else 0
        result = subprocess.run(
            [
                *map(str, self._command),
                str(killed_after),
                *self._options,
                "--output",
                output,
                *arguments,
            ],
            env={**os.environ, **_ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=600,
        )
        # torchrun tells of a killed rank by an exit status of its own.
        expected = (1, -signal.SIGKILL) if killed_after else (0,)
        assert result.returncode in expected, result.stdout + result.stderr
        return dict(self.losses(output)[seen:])

    def leave_unfinished(self, output):
        """What a kill within the second checkpoint would have left."""
        if self._unfinished is not None:
            (output / self._unfinished).mkdir()
            (output / self._unfinished / "model.safetensors").write_bytes(b"\0\0")


_ENVIRONMENT = {
    "PYTHONPATH": os.fspath(_ROOT / "client" / "python"),
    "ACCELERATE_USE_CPU": "true",
    "HF_HUB_OFFLINE": "1",
}


def lines_of(file):
    entries = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    return [(entry["step"], entry["loss"]) for entry in entries]


FRAMEWORKS = [
    Framework(
        "Trainer",
        "transformers",
        lambda output: lines_of(output / "losses.jsonl"),
        lambda output: load_file(output / "model.safetensors"),
        unfinished="checkpoint-8",
    ),
    Framework(
        "Trainer, FSDP2 on two ranks",
        "transformers",
        lambda output: lines_of(output / "losses.jsonl"),
        lambda output: load_file(output / "model.safetensors"),
        launcher=_TORCHRUN,
        options=("--fsdp",),
        unfinished="checkpoint-8",
    ),
    Framework(
        "accelerate, FSDP2 on two ranks",
        "accelerate",
        lambda output: lines_of(output / "losses-0.jsonl"),
        lambda output: load_file(output / "model" / "model.safetensors"),
        launcher=_TORCHRUN,
        unfinished="unfinished-step-0008",
    ),
    Framework(
        "Lightning",
        "lightning",
        lambda output: lines_of(output / "losses.jsonl"),
        lambda output: torch.load(output / "model.pt"),
    ),
]


def assert_equal_parameters(ours, theirs):
    assert ours.keys() == theirs.keys() and ours
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory):
    """Where a framework's undisturbed run with torch's AdamW ended, and its losses; made once."""
    made = {}

    def run(framework):
        if framework.name not in made:
            output = tmp_path_factory.mktemp("plain") / "output"
            losses = framework.run(output, "--optimizer", "torch")
            assert list(losses) == list(range(1, _STEPS + 1))
            made[framework.name] = output, losses
        return made[framework.name]

    return run


def momentd_of(daemon, job):
    return ["--job", job, "--socket", daemon.socket]


def assert_resumed(framework, output, before, after, plain):
    """Two parts of a run, killed between them, against the undisturbed one."""
    undisturbed, losses = plain
    # A loss is written in the step that it is of (Lightning), or after it.
    assert list(before) in ([*range(1, _KILLED_AFTER)], [*range(1, _KILLED_AFTER + 1)])
    assert list(after) == list(range(_CHECKPOINT_EVERY + 1, _STEPS + 1))
    assert {**before, **after} == losses and {**after, **before} == losses
    assert_equal_parameters(framework.parameters(output), framework.parameters(undisturbed))


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_a_killed_run_resumes_from_the_frameworks_own_checkpoint(
    framework, plain_run, scratch, daemon
):
    plain = plain_run(framework)
    whole = framework.run(scratch / "whole", *momentd_of(daemon, "whole"))
    parts = scratch / "parts"
    before = framework.run(parts, *momentd_of(daemon, "parts"), killed_after=_KILLED_AFTER)
    framework.leave_unfinished(parts)
    after = framework.run(parts, *momentd_of(daemon, "parts"))
    write_table(framework.name, plain[1], whole, before, after)
    assert whole == plain[1]
    assert_equal_parameters(
        framework.parameters(scratch / "whole"), framework.parameters(plain[0])
    )
    assert_resumed(framework, parts, before, after, plain)


@pytest.mark.parametrize("framework", FRAMEWORKS[2:], ids=lambda framework: framework.name)
def test_a_frameworks_checkpoint_of_torchs_optimizer_goes_on_with_momentd(
    framework, plain_run, scratch, daemon
):
    output = scratch / "output"
    before = framework.run(output, "--optimizer", "torch", killed_after=_KILLED_AFTER)
    after = framework.run(output, *momentd_of(daemon, "job"))
    assert_resumed(framework, output, before, after, plain_run(framework))


@pytest.mark.parametrize("framework", FRAMEWORKS[::3], ids=lambda framework: framework.name)
def test_a_run_killed_before_its_first_checkpoint_starts_over(
    framework, plain_run, scratch, daemon
):
    """Its store has state, and there is no checkpoint that the run would go on at."""
    output = scratch / "output"
    framework.run(output, *momentd_of(daemon, "job"), killed_after=_CHECKPOINT_EVERY // 2)
    undisturbed, losses = plain_run(framework)
    assert framework.run(output, *momentd_of(daemon, "job")) == losses
    assert_equal_parameters(framework.parameters(output), framework.parameters(undisturbed))


def write_table(name, *columns):
    file = os.environ.get("MOMENT_FRAMEWORKS_TABLE")
    if not file:
        return
    with open(file, "a") as table:
        print(f"\n{name}", file=table)
        heads = ("torch AdamW", "momentd", "momentd, killed", "resumed")
        print("step", *(f"{head:>16}" for head in heads), file=table)
        for step in sorted(columns[0]):
            losses = (f"{column[step]:16.9f}" if step in column else " " * 16 for column in columns)
            print(" ".join([f"{step:4}", *losses]).rstrip(), file=table)
