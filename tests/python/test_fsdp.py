"""Parameters cut over ranks: FSDP2, hybrid sharding, tensor parallelism. gloo, on the CPU."""

import json
import math

import pytest

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")

import momentd  # noqa: E402
from fsdp_cases import WAYS, Net, adamw, gradients, make, whole  # noqa: E402
from launcher import run_ranks  # noqa: E402

CASES = [(way, ranks) for way, (_, worlds) in WAYS.items() for ranks in worlds]
PARTITIONS = pytest.mark.parametrize("way, ranks", CASES, ids=lambda value: str(value))


def same_rank(way, rank):
    """Ranks of tensor parallelism have the same inputs."""
    return 0 if way == "tensor_parallel" else rank // 2 if way.startswith("fsdp_over") else rank


def _train_beside_torch(rank, way, socket, dtype, steps):
    net, twin = make(way, dtype), make(way, dtype)
    ours = adamw(net, "job", socket)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.1)
    norms = []
    for step in range(steps):
        for model, optimizer in ((net, ours), (twin, theirs)):
            optimizer.zero_grad()
            gradients(model, step, same_rank(way, rank))
            norms.append(whole(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)).item())
            optimizer.step()
        for (name, parameter), other in zip(net.named_parameters(), twin.parameters()):
            assert parameter.placements == other.placements
            assert torch.equal(whole(parameter), whole(other)), f"step {step}: {name}"
    assert norms[0::2] == norms[1::2]
    ours.close()


@PARTITIONS
def test_parameters_equal_those_of_torch(way, ranks, scratch, daemon):
    run_ranks(scratch, ranks, _train_beside_torch, way, daemon.socket, torch.float32, 4)


def _count_elements(rank, way, socket):
    """Each element's value is its number in the whole parameter, given before the model is cut."""
    net = Net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape))
    WAYS[way][0](net)
    optimizer = adamw(net, "job", socket)
    optimizer.refresh()
    optimizer.close()


def stored(state, rank):
    """The tensors of a rank's layout, and their mains. Files that were not written hold zeros."""
    store = state / "jobs" / "job" / "model" / f"rank{rank:05d}"
    (layout,) = [json.loads(path.read_text()) for path in store.glob("layout.*.json")]
    mains = {}
    for path in store.glob("opt0_0/*.safetensors"):
        for key, value in safetensors_torch.load_file(path).items():
            if key.startswith("main/"):
                name = key.removeprefix("main/")
                mains[name] = torch.maximum(value, mains.get(name, value))
    return layout["tensors"], mains


def numbers(piece):
    """What a box of the whole parameter holds if each element is its number."""
    shape = [int(size) for size in piece["global_shape"]]
    part = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    for dimension, (offset, extent) in enumerate(zip(piece["offset"], piece["extent"])):
        part = part.narrow(dimension, int(offset), int(extent))
    return part


@PARTITIONS
def test_each_rank_stores_the_part_that_its_layout_names(way, ranks, scratch, daemon):
    run_ranks(scratch, ranks, _count_elements, way, daemon.socket)
    copies = {}
    for rank in range(ranks):
        tensors, mains = stored(scratch / "state", rank)
        for tensor in tensors:
            (piece,) = tensor["shard"]["pieces"]
            assert piece["key"] == tensor["name"]
            expected = numbers(piece)
            assert [int(size) for size in tensor["shape"]] == list(expected.shape)
            if expected.numel():
                assert torch.equal(mains[tensor["name"]], expected), tensor
            held = copies.setdefault((tensor["name"], tensor["shard"].get("replica", 0)), [])
            held += expected.flatten().tolist()
    for name, value in Net().named_parameters():
        everything = [float(number) for number in range(value.numel())]
        replicas = [held for (key, _), held in copies.items() if key == name]
        assert replicas and all(sorted(held) == everything for held in replicas), name


@pytest.mark.parametrize("dtype", [torch.bfloat16], ids=str)
def test_16_bit_parameters_equal_those_of_fp32_copies(dtype, scratch, daemon):
    run_ranks(scratch, 2, _sixteen_bits, daemon.socket, dtype)


def _sixteen_bits(rank, socket, dtype):
    net = make("fsdp", dtype)
    masters = [parameter.detach().float().clone() for parameter in net.parameters()]
    ours = adamw(net, "job", socket)
    theirs = torch.optim.AdamW(masters, lr=1e-2, weight_decay=0.1)
    for step in range(3):
        ours.zero_grad()
        gradients(net, step, rank)
        for parameter, master in zip(net.parameters(), masters):
            master.grad = parameter.grad.float()
        ours.step()
        theirs.step()
        for (name, parameter), master in zip(net.named_parameters(), masters):
            expected = master.to_local().to(dtype)
            assert torch.equal(parameter.to_local(), expected), f"step {step}: {name}"
    ours.close()


def _mixed_precision(rank, socket):
    """fp32 shards, bf16 compute and reduction: what most users of FSDP2 have."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    nets = []
    for _ in range(2):
        torch.manual_seed(3)
        nets.append(fully_shard(Net(), mp_policy=policy))
    ours = adamw(nets[0], "job", socket)
    theirs = torch.optim.AdamW(nets[1].parameters(), lr=1e-2, weight_decay=0.1)
    for step in range(3):
        for net, optimizer in zip(nets, (ours, theirs)):
            optimizer.zero_grad()
            gradients(net, step, rank)
            optimizer.step()
        for parameter, other in zip(*(net.parameters() for net in nets)):
            assert torch.equal(parameter.to_local(), other.to_local())
    ours.close()


def test_mixed_precision_of_fsdp(scratch, daemon):
    run_ranks(scratch, 2, _mixed_precision, daemon.socket)


def _swapped(rank, socket):
    """The optimizer is built first; then its parameters are put in their places, as accelerate
    does."""
    torch.manual_seed(3)
    net = Net()
    optimizer = adamw(net, "job", socket)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    WAYS["fsdp"][0](net)
    now = dict(net.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [now[names[id(parameter)]] for parameter in group["params"]]
    twin = make("fsdp")
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.1)
    for step in range(3):
        for model, one in ((net, optimizer), (twin, theirs)):
            one.zero_grad()
            gradients(model, step, rank)
            one.step()
    for parameter, other in zip(net.parameters(), twin.parameters()):
        assert torch.equal(parameter.to_local(), other.to_local())
    optimizer.close()
    return [tensor.name for tensor in optimizer._session.options.tensors]


def test_parameters_may_be_swapped_until_the_first_step(scratch, daemon):
    expected = [name for name, _ in Net().named_parameters()]
    assert run_ranks(scratch, 2, _swapped, daemon.socket) == [expected, expected]


def _left_behind(rank, socket):
    net = Net()
    optimizer = adamw(net, "job", socket)
    WAYS["fsdp"][0](net)
    gradients(net, 0, rank)
    with pytest.raises(RuntimeError, match="first.weight .* fully_shard\\(\\) replaced it"):
        optimizer.step()


def test_an_optimizer_built_too_early_is_told_so(scratch, daemon):
    run_ranks(scratch, 2, _left_behind, daemon.socket)


def _changed_from_outside(rank, socket):
    net, twin = make("fsdp"), make("fsdp")
    ours = adamw(net, "job", socket)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2, weight_decay=0.1)
    changes = [
        lambda model: None,
        lambda model: model.second.weight.clamp_(-0.01, 0.01),
        lambda model: model.second.bias.to_local().add_(1.0),
        lambda model: model.load_state_dict({name: value * 2 for name, value
                                             in model.state_dict().items()}),
        lambda model: None,
    ]
    for step, change in enumerate(changes):
        for model, optimizer in ((net, ours), (twin, theirs)):
            with torch.no_grad():
                change(model)
            optimizer.zero_grad()
            gradients(model, step, rank)
            optimizer.step()
        for (name, parameter), other in zip(net.named_parameters(), twin.parameters()):
            assert torch.equal(parameter.to_local(), other.to_local()), f"step {step}: {name}"
    ours.close()


def test_parameters_changed_between_steps_are_noticed(scratch, daemon):
    run_ranks(scratch, 2, _changed_from_outside, daemon.socket)


def _one_row(rank, socket):
    """Three of four ranks hold nothing, and are no copies of each other."""
    from torch.distributed.fsdp import fully_shard

    net = fully_shard(torch.nn.Linear(5, 1))
    optimizer = adamw(net, "job", socket)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.ones(2, 5)).sum().backward()
        optimizer.step()
    optimizer.flush()
    optimizer.close()
    return optimizer.last_statistics.sequence


def test_ranks_may_hold_nothing(scratch, daemon):
    assert run_ranks(scratch, 4, _one_row, daemon.socket) == [3] * 4


def _step_once(rank, socket):
    net = make("fsdp")
    optimizer = adamw(net, "job", socket)
    gradients(net, 0, rank)
    optimizer.step()
    optimizer.close()


def _open_on_three(rank, socket):
    net = make("fsdp")
    optimizer = adamw(net, "job", socket, resume="auto")
    if rank == 2:
        return  # it has no store yet, and may open one
    with pytest.raises(momentd.Error, match="FAILED_PRECONDITION.*first.weight.* has sha"):
        optimizer.open()


def test_a_store_is_not_opened_with_another_sharding(scratch, daemon):
    run_ranks(scratch, 2, _step_once, daemon.socket)
    run_ranks(scratch, 3, _open_on_three, daemon.socket)


def _no_box(rank, socket):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Partial, Replicate

    both, first = DeviceMesh("cpu", [0, 1]), DeviceMesh("cpu", [0])
    cases = [(both, [Partial()], r"weight has placement .*: a parameter is sharded or replicated")]
    if rank == 1:
        cases.append((first, [Replicate()], "weight is on DeviceMesh.*this rank is not part of"))
    for mesh, placements, sentence in cases:
        parameter = torch.nn.Parameter(DTensor.from_local(torch.ones(2), mesh, placements))
        optimizer = momentd.torch.AdamW(
            [("weight", parameter)], job="job", socket=socket
        )
        with pytest.raises(ValueError, match=sentence):
            optimizer.open()


def test_placements_that_leave_no_box_are_refused(scratch, daemon):
    run_ranks(scratch, 2, _no_box, daemon.socket)
