"""What trainers do to memory on a GPU that they should not, or seldom do: buffers at odd places or of
two optimizers, pointers that are wrong, memory that is freed too early, and GPUs that trainer and
daemon name or see differently. The daemon serves on, and others notice nothing."""

import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import time

import pytest
from sharing import DAEMON, EXPECTED, Beside, momentd, parameters, torch
from test_deaths import RELEASED_WITHIN_S, TOLERANCE, await_used, used_bytes

MIB = 1 << 20
LARGE = 24 * MIB  # elements: far above what contexts vary by
UUID = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
TRAINER = """
import sys
from sharing import Beside, parameters
class Daemon: socket = sys.argv[1]
beside = Beside(Daemon, "named", parameters([(1000, 1000)]), lr=1e-3)
for _ in range(3): beside.step()
print("TRANSPORT", beside.transport(), "DIFFERING", beside.differing())
beside.optimizer.close()
"""


@contextlib.contextmanager
def serving(path, *arguments):
    with momentd.spawn(path / "state", log=path / "log",
                       arguments=[*DAEMON, *arguments]) as running:
        yield running
        assert running.process.poll() is None, (path / "log").read_text()
    assert running.process.returncode == 0, (path / "log").read_text()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("momentd")) as running:
        yield running


@pytest.fixture
def job(request):
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[-60:]


@pytest.fixture
def other(daemon, job):
    """A store that nothing bad is done to."""
    beside = Beside(daemon, f"{job}-other", parameters([(500, 300), (7,)]), lr=1e-3)
    beside.step()
    yield beside
    beside.step()
    assert beside.differing() == 0
    assert beside.transport() == EXPECTED
    beside.optimizer.close()


# Buffers at odd places.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_and_gradients_interleaved_in_one_allocation(daemon, job, dtype):
    counts = [400_001, 999, 300_003]
    flat = torch.randn(2_000_000, device="cuda").to(dtype)
    guard, outside = flat.clone(), torch.ones(2_000_000, dtype=torch.bool, device="cuda")
    pieces, begin = [], 1
    for count in [count for count in counts for _ in range(2)]:
        pieces.append(flat.data[begin:begin + count])  # .data: changes of each are counted apart
        outside[begin:begin + count] = False
        begin += count + 2
    beside = Beside(daemon, job, [torch.nn.Parameter(piece) for piece in pieces[::2]], lr=1e-3)
    gradients = pieces[1::2]
    for _ in range(10):
        for mine, theirs, gradient in zip(beside.ours, beside.theirs, gradients):
            gradient.copy_(torch.randn(gradient.shape, device="cuda") * 0.1)
            mine.grad, theirs.grad = gradient, gradient.float()
        kept = [gradient.clone() for gradient in gradients]
        beside.optimizer.step()
        beside.reference.step()
        assert all(torch.equal(now, then) for now, then in zip(gradients, kept))
    assert beside.differing() == 0
    assert torch.equal(flat[outside], guard[outside])
    assert beside.transport() == EXPECTED
    beside.optimizer.close()


def test_two_optimizers_over_the_same_parameters_have_torchs_bits(daemon, job):
    ours = parameters([(1000, 700), (1,), (33_333,)])
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    options = [dict(lr=1e-3, weight_decay=0.1), dict(lr=3e-4, betas=(0.5, 0.9))]
    streamed = [momentd.torch.AdamW(ours, job=f"{job}-{i}", socket=daemon.socket, commit_every=0,
                                    foreach=True, **each) for i, each in enumerate(options)]
    resident = [torch.optim.AdamW(theirs, foreach=True, **each) for each in options]

    def step(which):
        for mine, other in zip(ours, theirs):
            mine.grad = torch.randn_like(mine) * 0.1
            other.grad = mine.grad.clone()
        streamed[which].step()
        resident[which].step()
        assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs))

    for _ in range(5):
        step(0)
        step(1)
    streamed[0].close()
    step(1)
    assert streamed[1].info().transport == EXPECTED
    streamed[1].close()


# Pointers that are wrong.


def allocation_of(tensor):
    """Begin and end of the allocation that a tensor lies in."""
    for segment in torch.cuda.memory_snapshot():
        begin, end = segment["address"], segment["address"] + segment["total_size"]
        if begin <= tensor.data_ptr() < end:
            return begin, end
    raise AssertionError("torch does not know the tensor's memory")


@pytest.mark.skipif(EXPECTED != "cuda_ipc", reason="ranges are those of cudaMalloc")
@pytest.mark.parametrize("bad, reason", [
    ("beyond", "into an allocation of"),
    ("misaligned", "no multiple of its elements of 4 bytes"),
    ("none", "no parameter pointer"),
])
def test_a_pointer_that_is_wrong_is_refused_and_a_right_one_taken_again(daemon, job, other, bad,
                                                                       reason):
    beside = Beside(daemon, job, [torch.nn.Parameter(torch.randn(5_000_001, device="cuda")[:-1])],
                    lr=1e-3)
    beside.step()
    (parameter,) = beside.ours
    right = parameter.data_ptr()
    wrong = {"beyond": allocation_of(parameter)[1] - 4, "misaligned": right + 2, "none": None}[bad]
    store = beside.optimizer._session.store
    with pytest.raises(momentd.Error, match=reason) as refused:
        store.attach([wrong])
    assert refused.value.code == "INVALID_ARGUMENT"
    other.step()
    store.attach([right])
    for _ in range(3):
        beside.step()
    assert beside.differing() == 0
    beside.optimizer.close()


# Memory that is freed too early.


def large_optimizer(daemon):
    """It has stepped, and the memory of its gradients is gone."""
    (parameter,) = parameters([(LARGE,)])
    optimizer = momentd.torch.AdamW([parameter], job="large", resume="never", socket=daemon.socket,
                                    commit_every=0)
    parameter.grad = torch.full_like(parameter, 0.1)
    optimizer.step()
    parameter.grad = None
    torch.cuda.empty_cache()
    return parameter, optimizer


def used_without_cache():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    return used_bytes()


def assert_given_back(before):
    torch.cuda.empty_cache()
    seconds = await_used(before + TOLERANCE, time.monotonic())
    print(f"memory back after {seconds:.2f} s")
    assert seconds < RELEASED_WITHIN_S


@pytest.mark.parametrize("call", ["step", "detach", None])
@pytest.mark.parametrize("way", ["resized", "replaced"])
@pytest.mark.parametrize("emptied", [False, True], ids=["cached", "emptied"])
def test_parameters_freed_before_close_are_not_touched_and_given_back(daemon, other, way, call, emptied):
    before = used_without_cache()
    parameter, optimizer = large_optimizer(daemon)
    assert used_bytes() > before + LARGE * 4 - TOLERANCE, "the trainer's memory is not seen"
    address = parameter.data_ptr()
    if way == "resized":  # as sharded modules do between uses
        parameter.untyped_storage().resize_(0)
    else:
        parameter.data = torch.empty(0, device="cuda")
    if emptied:
        torch.cuda.empty_cache()
    instead = torch.full((LARGE,), 7.0, device="cuda")
    assert emptied or instead.data_ptr() == address, "the cache gave other memory"
    torch.cuda.synchronize()
    if call is not None:
        with pytest.raises(RuntimeError, match="parameter"):
            getattr(optimizer, call)()
    other.step()
    optimizer.close()
    assert bool((instead == 7.0).all())
    del instead
    assert_given_back(before)


def test_an_optimizer_that_is_dropped_with_its_parameters_gives_them_back(daemon, other):
    before = used_without_cache()
    parameter, optimizer = large_optimizer(daemon)
    assert used_bytes() > before + LARGE * 4 - TOLERANCE, "the trainer's memory is not seen"
    del parameter
    other.step()
    del optimizer
    gc.collect()
    assert_given_back(before)


# GPUs that trainer and daemon name or see differently.


def number_of_first_gpu():
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    if not visible.isdigit():
        pytest.skip("CUDA_VISIBLE_DEVICES names no GPU by its number")
    return visible


@pytest.mark.parametrize("named_by_uuid", ["trainer", "daemon"])
def test_trainer_and_daemon_name_the_gpu_differently(tmp_path, monkeypatch, named_by_uuid):
    number = number_of_first_gpu()
    of_trainer, of_daemon = (UUID, number) if named_by_uuid == "trainer" else (number, UUID)
    with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setenv("CUDA_VISIBLE_DEVICES", of_daemon)
        daemon = stack.enter_context(serving(tmp_path, "--gpu", "auto"))
        done = subprocess.run(
            [sys.executable, "-c", TRAINER, daemon.socket], capture_output=True, text=True,
            timeout=100, cwd=pathlib.Path(__file__).parent,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": of_trainer})
    assert f"TRANSPORT {EXPECTED} DIFFERING 0" in done.stdout, done.stdout + done.stderr[-2000:]
    assert f"name={UUID}" in (tmp_path / "log").read_text()


def test_a_gpu_that_the_daemon_does_not_see_is_refused_by_name_and_the_cpu_served(tmp_path,
                                                                                 monkeypatch):
    with contextlib.ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setenv("CUDA_VISIBLE_DEVICES", "")
            daemon = stack.enter_context(serving(tmp_path, "--gpu", "auto"))
        assert "sees no GPU" in (tmp_path / "log").read_text()
        optimizer = momentd.torch.AdamW(parameters([(100, 100)]), job="unseen",
                                        socket=daemon.socket)
        for _ in range(2):
            with pytest.raises(momentd.Error, match=f"no device {UUID}") as refused:
                optimizer.open()
            assert refused.value.code == "INVALID_ARGUMENT"
        ours = [torch.nn.Parameter(p.detach().cpu()) for p in parameters([(300, 200), (7,)])]
        theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
        served = momentd.torch.AdamW(ours, lr=1e-3, job="on-the-cpu", socket=daemon.socket)
        reference = torch.optim.AdamW(theirs, lr=1e-3)
        for _ in range(5):
            for mine, other in zip(ours, theirs):
                mine.grad = torch.randn_like(mine) * 0.1
                other.grad = mine.grad.clone()
            served.step()
            reference.step()
        assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs))
        served.close()
