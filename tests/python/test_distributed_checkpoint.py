"""State of several ranks through torch's own doors: torch.distributed.checkpoint over DTensors, and
ZeroRedundancyOptimizer's consolidated state. gloo, on the CPU."""

import copy

import pytest

torch = pytest.importorskip("torch")

import momentd.torch  # noqa: E402
from fsdp_cases import adamw, gradients, make, whole  # noqa: E402
from launcher import run_ranks  # noqa: E402
from test_data_parallel import make as make_parallel  # noqa: E402
from test_data_parallel import parameters, train, zero  # noqa: E402

SAVED_STEPS, MORE_STEPS = 3, 2


def optimizer_of(kind, net, job, socket):
    if kind == "torch":
        return torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    return adamw(net, job, socket)


def run(net, optimizer, rank, steps):
    for step in steps:
        optimizer.zero_grad()
        gradients(net, step, rank)
        optimizer.step()


def close(optimizer):
    if hasattr(optimizer, "close"):
        optimizer.close()


class Trainer:
    """The stateful interface, as torch's tutorial has it."""

    def __init__(self, net, optimizer):
        self.net = net
        self.optimizer = optimizer

    def state_dict(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.net, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict):
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(
            self.net, self.optimizer, model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
        )


def everything(net, optimizer):
    """Whole parameters and the whole state, by name."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    state = get_optimizer_state_dict(net, optimizer)["state"]
    found = {name: whole(value.detach()).clone() for name, value in net.named_parameters()}
    for name, entries in state.items():
        for key, value in entries.items():
            found[f"{name}.{key}"] = whole(value).clone()
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def _save(rank, way, kind, socket, path):
    import torch.distributed.checkpoint as dcp

    net = make(way)
    optimizer = optimizer_of(kind, net, f"saved by {way}", socket)
    run(net, optimizer, rank, range(SAVED_STEPS))
    dcp.save({"trainer": Trainer(net, optimizer)}, checkpoint_id=path)
    result = everything(net, optimizer)
    close(optimizer)
    return result


def _load(rank, way, kind, socket, path):
    """What was loaded, and what came of it after more steps."""
    import torch.distributed.checkpoint as dcp

    net = make(way, seed=8)
    job = f"loaded by {way} on {torch.distributed.get_world_size()}"
    optimizer = optimizer_of(kind, net, job, socket)
    trainer = Trainer(net, optimizer)
    dcp.load({"trainer": trainer}, checkpoint_id=path)
    loaded = everything(net, optimizer)
    run(net, optimizer, rank, range(SAVED_STEPS, SAVED_STEPS + MORE_STEPS))
    result = everything(net, optimizer)
    close(optimizer)
    return loaded, result


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of torch's own optimizer, and what was in it."""
    base = tmp_path_factory.mktemp("torch")
    path = base / "checkpoint"
    return path, run_ranks(base, 4, _save, "fsdp", "torch", None, path)[0]


@pytest.mark.parametrize(
    "way, ranks",
    [("fsdp", 4), ("fsdp", 2), ("fsdp", 3), ("hybrid", 4), ("tensor_parallel", 2),
     ("fsdp_over_tensor_parallel", 4)],
)
def test_a_save_of_four_ranks_loads_by_name(way, ranks, saved, scratch, daemon):
    torch_path, torch_state = saved
    path = scratch / "checkpoint"
    ours = run_ranks(scratch, 4, _save, "fsdp", "momentd", daemon.socket, path)[0]
    assert_same(ours, torch_state)
    loaded, later = run_ranks(scratch, ranks, _load, way, "momentd", daemon.socket, path)[0]
    assert_same(loaded, ours)
    from_torch, theirs = run_ranks(scratch, ranks, _load, way, "torch", None, torch_path)[0]
    assert_same(from_torch, torch_state)
    assert_same(later, theirs)


def test_checkpoints_pass_between_torch_and_momentd(saved, scratch, daemon):
    path, state = saved
    loaded, ours = run_ranks(scratch, 3, _load, "fsdp", "momentd", daemon.socket, path)[0]
    assert_same(loaded, state)
    _, theirs = run_ranks(scratch, 3, _load, "fsdp", "torch", None, path)[0]
    assert_same(ours, theirs)


def _saves_in_a_row(rank, socket, base):
    import torch.distributed.checkpoint as dcp

    net = make("fsdp")
    optimizer = adamw(net, "job", socket)
    run(net, optimizer, rank, range(2))
    before = everything(net, optimizer)
    for number in range(10):
        optimizer.zero_grad()
        dcp.save({"trainer": Trainer(net, optimizer)}, checkpoint_id=base / str(number))
    assert_same(everything(net, optimizer), before)
    assert optimizer.sequence == 2
    optimizer.close()


def test_ten_saves_in_a_row_change_nothing(scratch, daemon):
    run_ranks(scratch, 2, _saves_in_a_row, daemon.socket, scratch)


def _full_state(rank, socket, broadcast):
    """torch's option for one file that a single process can read: on rank 0 alone, or on all."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    load_options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast)
    found = []
    for kind in ("momentd", "torch"):
        net = make("fsdp")
        optimizer = optimizer_of(kind, net, "job", socket)
        run(net, optimizer, rank, range(2))
        state = copy.deepcopy(get_optimizer_state_dict(net, optimizer, options=options))
        run(net, optimizer, rank, range(2, 4))
        if broadcast and rank != 0:
            state = {}
        elif not broadcast:
            # Every rank has to have it.
            box = [state if rank == 0 else None]
            torch.distributed.broadcast_object_list(box)
            (state,) = box
        set_optimizer_state_dict(net, optimizer, state, options=load_options)
        run(net, optimizer, rank, range(4, 6))
        found.append(everything(net, optimizer))
        close(optimizer)
    assert_same(*found)


@pytest.mark.parametrize("broadcast", [True, False], ids=["broadcast", "everywhere"])
def test_a_full_state_is_taken_apart(broadcast, scratch, daemon):
    run_ranks(scratch, 2, _full_state, daemon.socket, broadcast)


def _zero_state(rank, socket, steps):
    """Consolidated on rank 0, loaded into a new run everywhere; beside torch's own AdamW."""
    results = []
    for kind in (momentd.torch.AdamW, torch.optim.AdamW):
        for job, state in (("first", None), ("second", "of the first")):
            net, model = make_parallel()
            arguments = {"job": job, "socket": socket, "module": net}
            optimizer = zero(net, kind, **(arguments if kind is momentd.torch.AdamW else {}))
            if state is None:
                train(model, optimizer, rank, range(steps))
                optimizer.consolidate_state_dict(to=0)
                box = [optimizer.state_dict() if rank == 0 else None]
                torch.distributed.broadcast_object_list(box)
                saved, values = box[0], parameters(net)
            else:
                with torch.no_grad():
                    for parameter, value in zip(net.parameters(), values):
                        parameter.copy_(value)
                optimizer.load_state_dict(copy.deepcopy(saved))
                train(model, optimizer, rank, range(steps, steps + 3))
                results.append((saved["state"], parameters(net)))
            close(optimizer.optim)
    (our_state, ours), (their_state, theirs) = results
    assert our_state.keys() == their_state.keys()
    for number, entries in their_state.items():
        for key, value in entries.items():
            assert torch.equal(our_state[number][key], value), (number, key)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_zero_consolidates_and_loads(ranks, scratch, daemon):
    run_ranks(scratch, ranks, _zero_state, daemon.socket, 3)


def _zero_through_checkpoint(rank, socket):
    from torch.distributed.checkpoint import state_dict as checkpoint

    net, model = make_parallel()
    optimizer = zero(net, momentd.torch.AdamW, job="job", socket=socket, module=net)
    train(model, optimizer, rank, range(2))
    optimizer.zero_grad()
    store = optimizer.optim._session.store
    digests, trained = store.digest(), parameters(net)
    empty = {"state": {}, "param_groups": []}
    for ask in (
        lambda: checkpoint.get_optimizer_state_dict(net, optimizer),
        lambda: checkpoint.set_optimizer_state_dict(net, optimizer, empty),
    ):
        with pytest.raises(RuntimeError, match="Use consolidate_state_dict"):
            ask()
        optimizer.zero_grad()
    assert store.digest() == digests
    assert all(torch.equal(one, other) for one, other in zip(parameters(net), trained))
    optimizer.step()  # a learning rate of 0 alone is nothing to refuse
    optimizer.optim.close()


def test_zero_is_refused_by_checkpoints_that_would_step_it(scratch, daemon):
    run_ranks(scratch, 2, _zero_through_checkpoint, daemon.socket)
