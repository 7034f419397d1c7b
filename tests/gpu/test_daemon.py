"""momentd with a GPU: a trainer's ordinary memory through the ring, bit for bit as torch."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if "MOMENTD_BINARY" not in os.environ:
    pytest.skip("MOMENTD_BINARY does not name the daemon", allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import momentd
import momentd.torch

SHAPES = [(4000, 3000), (3000,), (1,), (513, 77), (5_000_003,), (12, 12, 12)]


@pytest.fixture
def daemon(tmp_path):
    arguments = ["--host-memory", "512MiB", "--gpu-staging", "64MiB"]
    with momentd.spawn(tmp_path / "state", log=tmp_path / "log", arguments=arguments) as running:
        yield running
    log = (tmp_path / "log").read_text()
    print(log)
    assert running.process.returncode == 0, log
    assert "name=GPU-" in log


def train(daemon, profile, implementation, *, dtype, is_adam, steps=6):
    """Elements of all parameters that differ from torch's after each step, added."""
    random = torch.Generator().manual_seed(1)
    ours = [torch.nn.Parameter(torch.randn(shape, generator=random).to(dtype)) for shape in SHAPES]
    theirs = [torch.nn.Parameter(p.detach().float().cuda()) for p in ours]
    # torch's fused Adam has no one sequence with weight decay (gpu_optimizers.is_ambiguous).
    decays = not (is_adam and profile == "torch-cuda")
    options = dict(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1 if decays else 0.0)
    names = ("Adam", "Adam") if is_adam else ("AdamW", "AdamW")
    optimizer = getattr(momentd.torch, names[0])(
        ours, **options, job=f"{profile}-{dtype}-{names[0]}".replace("torch.", ""),
        profile=profile, socket=daemon.socket)
    reference = getattr(torch.optim, names[1])(theirs, **options, **implementation)
    differences = 0
    for _ in range(steps):
        for mine, other in zip(ours, theirs):
            mine.grad = (torch.randn(mine.shape, generator=random) * 0.1).to(dtype)
            other.grad = mine.grad.float().cuda()
        optimizer.step()
        reference.step()
        for mine, other in zip(ours, theirs):
            differences += int((mine.detach() != other.detach().to(dtype).cpu()).sum())
    optimizer.close()
    return differences


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_adam", [False, True])
def test_steps_through_the_daemon_have_torchs_bits(daemon, dtype, is_adam):
    for profile, implementation in (("torch-cuda", {"fused": True}),
                                    ("torch-cuda-foreach", {"foreach": True})):
        assert train(daemon, profile, implementation, dtype=dtype, is_adam=is_adam) == 0


def test_a_gpu_that_is_not_there_is_named_at_start(tmp_path):
    done = subprocess.run(
        [os.environ["MOMENTD_BINARY"], "--state-dir", tmp_path, "--socket-dir", tmp_path,
         "--gpu", "GPU-00000000-0000-0000-0000-000000000000"],
        capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "GPU-00000000" in done.stderr
