"""DistributedDataParallel: with ZeroRedundancyOptimizer it works, alone it is refused. gloo, on the
CPU."""

import pytest

torch = pytest.importorskip("torch")

import momentd.torch  # noqa: E402
from launcher import Job, run_ranks  # noqa: E402
from momentd.torch import TrainerState  # noqa: E402

RANKS = pytest.mark.parametrize("ranks", [2, 3, 4])


class Net(torch.nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        sizes = [6, 17, 9, 1] if layers == 3 else [6, 17, 1]
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(fan_in, fan_out) for fan_in, fan_out in zip(sizes, sizes[1:])
        )

    def forward(self, inputs):
        for layer in self.layers[:-1]:
            inputs = torch.tanh(layer(inputs))
        return self.layers[-1](inputs)


def make(layers=2):
    torch.manual_seed(2)
    net = Net(layers)
    return net, torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)


def zero(net, optimizer_class, **arguments):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(
        net.parameters(), optimizer_class=optimizer_class, lr=1e-2, weight_decay=0.1, **arguments
    )


def train(model, optimizer, rank, steps):
    for step in steps:
        generator = torch.Generator().manual_seed(10 * step + rank)
        inputs = torch.randn(4, 6, generator=generator)
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()


def parameters(net):
    return [parameter.detach().clone() for parameter in net.parameters()]


def assert_equal(net, other):
    for ours, theirs in zip(parameters(net), parameters(other)):
        assert torch.equal(ours, theirs)


def _zero_beside_torch(rank, socket, view):
    net, model = make()
    twin, their_model = make()
    ours = zero(net, momentd.torch.AdamW, job="job", socket=socket, module=net,
                parameters_as_bucket_view=view)
    theirs = zero(twin, torch.optim.AdamW, parameters_as_bucket_view=view)
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (ours, theirs)]
    for step in range(4):
        train(model, ours, rank, [step])
        train(their_model, theirs, rank, [step])
        for scheduler in schedulers:
            scheduler.step()
        assert_equal(net, twin)
    names = {name for name, _ in net.named_parameters()}
    held = [tensor.name for tensor in ours.optim._session.options.tensors]
    ours.optim.close()
    assert names.issuperset(held)
    return held


@RANKS
@pytest.mark.parametrize("view", [False, True], ids=["own memory", "bucket views"])
def test_zero_deals_the_state_out(ranks, view, scratch, daemon):
    held = run_ranks(scratch, ranks, _zero_beside_torch, daemon.socket, view)
    everything = sorted(name for one in held for name in one)
    assert everything == sorted(name for name, _ in Net().named_parameters())


def _zero_with_idle_ranks(rank, socket):
    torch.manual_seed(2)
    net = torch.nn.Linear(3, 2)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = zero(net, momentd.torch.AdamW, job="job", socket=socket, module=net)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    optimizer.optim.flush()
    optimizer.optim.close()
    return len(optimizer.optim.param_groups[0]["params"]), optimizer.optim.last_statistics.sequence


def test_ranks_without_parameters_step_too(scratch, daemon):
    assert sorted(run_ranks(scratch, 4, _zero_with_idle_ranks, daemon.socket)) == [
        (0, 3), (0, 3), (1, 3), (1, 3)
    ]


def _zero_groups(rank, socket):
    """What ZeRO keeps of our arguments, at every moment."""
    net, model = make(layers=3)
    state = TrainerState()
    optimizer = zero(net.layers[:2], momentd.torch.AdamW, job="job", socket=socket, module=net,
                     blob=state)
    arguments = ("module", "blob", "job", "socket")
    seen = [[group[name] for name in arguments] for group in optimizer.param_groups]
    momentd.torch.resume(net, optimizer)
    train(model, optimizer, rank, [0])
    optimizer.add_param_group({"params": list(net.layers[2].parameters())})
    optimizer._sync_param_groups(optimizer.param_groups, optimizer.optim.param_groups)
    groups_of = [optimizer.optim.state_dict()["param_groups"]]
    train(model, optimizer, rank, [1, 2])
    for groups in (*groups_of, optimizer.param_groups, optimizer.optim.param_groups):
        seen += [[group[name] for name in arguments] for group in groups]
    optimizer.optim.close()
    return [value for values in seen for value in values if value is not None]


def test_zero_keeps_none_of_our_arguments_in_its_groups(scratch, daemon):
    assert run_ranks(scratch, 2, _zero_groups, daemon.socket) == [[], []]


def _zero_with_names(rank, socket):
    net, _ = make()
    names = [name for name, _ in net.named_parameters()]
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ZeroRedundancyOptimizer(
        [{"params": list(net.parameters()), "param_names": names}],
        optimizer_class=momentd.torch.AdamW, job="job", socket=socket,
    )


def test_names_that_zero_would_mix_up_are_refused(scratch, daemon):
    results, well = Job(scratch, 2, _zero_with_names, daemon.socket).wait()
    assert not well
    assert any("give module= instead" in str(result) for result in results), results


def _zero_without_names(rank, socket):
    """Two tensors of one shape, one a rank: positions and shapes are the same on both."""
    torch.manual_seed(2)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = zero(net, momentd.torch.AdamW, job="job", socket=socket)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.optim.close()


def test_positions_of_equal_shapes_are_no_copies(scratch, daemon):
    run_ranks(scratch, 2, _zero_without_names, daemon.socket)


def _plain(rank, socket, named, arguments):
    net, model = make()
    optimizer = momentd.torch.AdamW(
        model.parameters(), job="job", socket=socket, module=model if named else None, **arguments
    )
    train(model, optimizer, rank, range(3))
    optimizer.close()
    return torch.cat([parameter.flatten() for parameter in parameters(net)]).tolist()


@RANKS
@pytest.mark.parametrize("named", [True, False], ids=["named", "positional"])
def test_plain_data_parallelism_is_refused_naming_the_ways_out(ranks, named, scratch, daemon):
    results, well = Job(scratch, ranks, _plain, daemon.socket, named, {}).wait()
    assert not well
    errors = [str(result) for result in results if "RuntimeError" in str(result)]
    assert errors, results
    for way_out in ("ZeroRedundancyOptimizer", "fully_shard", "replicas=True"):
        assert way_out in errors[0]


def test_replicas_may_be_wanted(scratch, daemon):
    results = run_ranks(scratch, 2, _plain, daemon.socket, True, {"replicas": True})
    assert results[0] == results[1]


def _apart(rank, socket):
    """Every rank trains a model of its own under a role of its own."""
    torch.manual_seed(rank)
    net = Net()
    optimizer = momentd.torch.AdamW(
        net.parameters(), job="job", role=f"member{rank}", socket=socket, module=net
    )
    train(net, optimizer, rank, range(2))
    optimizer.close()
    return optimizer.last_statistics.sequence


def test_models_of_their_own_roles_are_no_copies(scratch, daemon):
    assert run_ranks(scratch, 2, _apart, daemon.socket) == [2, 2]


def _opened_twice(rank, socket):
    net = torch.nn.Linear(2 + rank, 1)
    for _ in range(2):
        optimizer = momentd.torch.AdamW(
            net.parameters(), job="job", socket=socket, module=net, resume="auto"
        )
        optimizer.open()
        optimizer.close()


def test_a_rank_may_open_its_store_again(scratch, daemon):
    run_ranks(scratch, 2, _opened_twice, daemon.socket)
