"""A trainer's GPU buffers through momentd, bit for bit as torch. The allocator is that of the
environment (PYTORCH_CUDA_ALLOC_CONF), and MOMENT_GPU_EXPECT the transport it leads to."""

import time

import pytest
from sharing import DAEMON, EXPECTED, Beside, differing, managed, momentd, parameters, torch
from sharing import unexportable

CASES = [
    dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0),
    dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
    dict(lr=1e-2, betas=(0.5, 0.7), eps=1e-6, weight_decay=0.0, maximize=True),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    path = tmp_path_factory.mktemp("momentd")
    with momentd.spawn(path / "state", log=path / "log", arguments=DAEMON) as running:
        yield running
    log = (path / "log").read_text()
    print(log[-6000:])
    assert running.process.returncode == 0, log


@pytest.fixture
def job(request):
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("implementation", [{"foreach": True}, {"fused": True}], ids=["foreach", "fused"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_hundred_steps_have_torchs_bits(daemon, job, dtype, adam, implementation, case):
    options = CASES[case]
    if adam and "fused" in implementation:
        options = dict(options, weight_decay=0.0)  # torch has no one sequence there
    beside = Beside(daemon, job, parameters(dtype=dtype), adam=adam,
                    implementation=implementation, **options)
    for _ in range(100):
        beside.step()
    assert beside.differing() == 0
    assert beside.transport() == EXPECTED
    beside.optimizer.close()


def test_gradients_move_and_their_old_memory_is_given_back_a_hundred_times(daemon, job):
    beside = Beside(daemon, job, parameters([(1500, 1000), (70_001,)]), lr=1e-3)
    for step in range(100):
        hold = torch.empty(1 + step * 100_000, device="cuda")
        beside.step()
        del hold
        torch.cuda.empty_cache()
    assert beside.differing() == 0
    beside.optimizer.close()


def test_a_slow_kernel_is_waited_for(daemon, job):
    beside = Beside(daemon, job, parameters([(1000, 1000)]), lr=1e-3)
    for _ in range(20):
        torch.cuda._sleep(20_000_000)
        beside.step()
    assert beside.differing() == 0
    beside.optimizer.close()


def test_tensors_at_odd_offsets_of_one_allocation(daemon, job):
    flat = torch.randn(3_000_000, device="cuda")
    cuts = [(1, 1_000_000), (1_000_003, 999), (1_001_007, 1_900_001)]
    guard = flat.clone()
    ours = [torch.nn.Parameter(flat[first:first + count]) for first, count in cuts]
    beside = Beside(daemon, job, ours, lr=1e-3)
    for _ in range(10):
        beside.step()
    assert beside.differing() == 0
    outside = torch.ones_like(flat, dtype=torch.bool)
    for first, count in cuts:
        outside[first:first + count] = False
    assert torch.equal(flat[outside], guard[outside])
    beside.optimizer.close()


def test_memory_that_cannot_be_exported_goes_through_the_ring_beside_the_rest(daemon, job):
    special = unexportable(500_000)
    special.copy_(torch.randn(500_000, device="cuda"))
    also = managed(300_000)
    also.copy_(torch.randn(300_000, device="cuda"))
    ours = [torch.nn.Parameter(special), torch.nn.Parameter(also), *parameters([(1000, 700)])]
    beside = Beside(daemon, job, ours, lr=1e-3)
    for _ in range(20):
        beside.step()
    assert beside.differing() == 0
    assert beside.transport() == ("ring" if EXPECTED == "ring" else f"{EXPECTED}, ring")
    beside.optimizer.close()


def test_parameters_in_a_memory_pool(daemon, job):
    if EXPECTED == "ring":
        pytest.skip("pools of this allocator cannot be made")
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        ours = parameters([(1000, 1000), (7,)])
    beside = Beside(daemon, job, ours, lr=1e-3)
    for _ in range(10):
        beside.step()
    assert beside.differing() == 0
    beside.optimizer.close()


def test_a_paused_trainer_gives_its_memory_back_and_goes_on_in_other_memory(daemon, job):
    beside = Beside(daemon, job, parameters([(16_000, 4_000)], torch.bfloat16), lr=1e-3)
    for _ in range(3):
        beside.step()
    kept = [p.detach().cpu() for p in beside.ours]
    started = time.monotonic()
    beside.optimizer.detach()
    assert time.monotonic() - started < 0.5
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    for p in beside.ours:
        p.data = torch.empty(0, dtype=p.dtype, device="cuda")
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] - free >= sum(k.numel() * 2 for k in kept) // 2
    with pytest.raises(momentd.Error, match="no parameters are attached|parameter"):
        beside.optimizer._session.store.step([], [], [], [])
    for p, k in zip(beside.ours, kept):
        p.data = torch.zeros_like(k, device="cuda")
    with pytest.raises(RuntimeError, match="not what they were"):
        beside.optimizer.attach()
    for p, k in zip(beside.ours, kept):
        p.data = k.cuda()
    beside.optimizer.attach()
    beside.step()
    assert beside.differing() == 0
    beside.optimizer.detach()
    for p in beside.ours:
        p.data.zero_()
    beside.optimizer.attach(restore=True)
    beside.step()
    assert beside.differing() == 0
    beside.optimizer.close()


def test_two_stores_share_one_allocation(daemon, job):
    flat = torch.randn(2_000_000, device="cuda")
    besides = [
        Beside(daemon, f"{job}-{i}", [torch.nn.Parameter(flat[i * 1_000_000:][:1_000_000])], lr=1e-3)
        for i in range(2)]
    for _ in range(5):
        for beside in besides:
            beside.step()
    besides[0].optimizer.close()
    for _ in range(3):
        besides[1].step()
    assert [beside.differing() for beside in besides] == [0, 0]
    besides[1].optimizer.close()


def test_refusals_name_what_is_wrong(daemon):
    on_cpu, on_gpu = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3).cuda())
    with pytest.raises(ValueError, match="cuda:0"):
        momentd.torch.AdamW([on_cpu, on_gpu], job="two-devices", socket=daemon.socket).open()
    with pytest.raises(ValueError, match="foreach=False"):
        momentd.torch.AdamW([on_gpu], foreach=False, job="single", socket=daemon.socket)
    assert differing(on_gpu, on_gpu) == 0
