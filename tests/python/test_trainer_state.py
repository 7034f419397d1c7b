"""What a trainer keeps with a step: encoding, capture, restoring, and what is refused."""

import collections
import math
import random
import warnings

import numpy
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as some  # noqa: E402

from momentd.torch import TrainerState, blob  # noqa: E402

scalars = (
    some.none() | some.booleans() | some.integers() | some.text() | some.binary()
    | some.floats(allow_nan=False) | some.tuples(some.integers(), some.text())
)
values = some.recursive(
    scalars,
    lambda inner: some.lists(inner)
    | some.dictionaries(some.text() | some.integers(), inner)
    | some.tuples(inner, inner),
    max_leaves=20,
)


@given(values)
@settings(max_examples=200, deadline=None)
def test_plain_values_come_back_as_they_were(value):
    result = blob.decode(blob.encode(value))
    assert result == value and repr(result) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        collections.Counter({3: 2, 7: 1}),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.deque([1, 2], maxlen=2),
        {1, 2},
        frozenset(["x"]),
        torch.Size([2, 3]),
        torch.bfloat16,
        {"$": 1},
        {"$": {"$": ["tensor"]}},
        -0.0,
        math.inf,
    ],
    ids=repr,
)
def test_containers_keep_their_type(value):
    result = blob.decode(blob.encode(value))
    assert result == value and type(result) is type(value) and repr(result) == repr(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool,
                                   torch.uint8, torch.complex64, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5)], ids=str)
def test_tensors_keep_their_bits(dtype, shape):
    tensor = torch.randn(shape).to(dtype)
    result = blob.decode(blob.encode([tensor]))[0]
    assert result.dtype == dtype and result.shape == tensor.shape
    assert blob.raw_bytes(result) == blob.raw_bytes(tensor)


def test_a_view_is_kept_as_what_it_shows():
    tensor = torch.arange(12).reshape(3, 4).t()[1:]
    assert torch.equal(blob.decode(blob.encode(tensor)), tensor)


def test_numpy_arrays_and_scalars_are_kept():
    array = numpy.arange(6, dtype=numpy.uint16).reshape(2, 3)
    result = blob.decode(blob.encode({"array": array, "scalar": numpy.float64(0.1)}))
    assert numpy.array_equal(result["array"], array) and result["array"].dtype == array.dtype
    assert result["scalar"] == numpy.float64(0.1) and type(result["scalar"]) is numpy.float64


@pytest.mark.parametrize("value", [object(), len, lambda: 0, numpy.array([object()]), 1 + 2j,
                                   torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")],
                         ids=lambda value: type(value).__name__)
def test_what_is_no_plain_value_is_refused_by_name(value):
    with pytest.raises(TypeError, match=r"state\.a\[1\]"):
        blob.encode({"a": [0, value]}, "state")


def test_nothing_is_called_by_decoding():
    """A pickle in the place of a blob, and tags that are not ours."""
    import pickle

    with pytest.raises(ValueError, match="not a blob"):
        blob.decode(pickle.dumps({"a": 1}))
    good = blob.encode((1,))
    assert b'"tuple"' in good
    with pytest.raises(ValueError, match="damaged"):
        blob.decode(good.replace(b'"tuple"', b'"eval!"'))


def test_another_version_is_refused():
    data = bytearray(blob.encode(1))
    data[4] = 2
    with pytest.raises(ValueError, match="version 2"):
        blob.decode(bytes(data))


@given(some.data())
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_are_an_error_or_a_value(data):
    good = bytearray(blob.encode({"a": torch.arange(5), "b": (1, "x"), "c": b"12"}))
    if data.draw(some.booleans()):
        del good[data.draw(some.integers(0, len(good) - 1)) :]
    else:
        good[data.draw(some.integers(0, len(good) - 1))] ^= data.draw(some.integers(1, 255))
    try:
        blob.decode(bytes(good))
    except ValueError:
        pass


class Stub:
    """The part of momentd's optimizer that a TrainerState asks."""

    def __init__(self):
        self.sequence = 0


def bound(state, optimizer):
    store = Stub()
    state.bind([optimizer], store)
    return store


def make_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


SCHEDULERS = {
    "LambdaLR": lambda o: lr.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda o: lr.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: lr.StepLR(o, 3),
    "MultiStepLR": lambda o: lr.MultiStepLR(o, [2, 5, 5]),
    "ConstantLR": lambda o: lr.ConstantLR(o),
    "LinearLR": lambda o: lr.LinearLR(o),
    "ExponentialLR": lambda o: lr.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 4),
    "CyclicLR": lambda o: lr.CyclicLR(o, 0.1, 0.5, step_size_up=3),
    "OneCycleLR": lambda o: lr.OneCycleLR(o, 0.5, total_steps=30),
    "SequentialLR": lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o), lr.CosineAnnealingLR(o, 10)], milestones=[4]
    ),
    "ChainedScheduler": lambda o: lr.ChainedScheduler([lr.ConstantLR(o), lr.ExponentialLR(o, 0.9)]),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, swa_lr=0.05),
}
lr = torch.optim.lr_scheduler


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_of_torch_goes_on_as_it_would_have(name):
    def build():
        model = torch.nn.Linear(2, 2)
        optimizer = make_sgd(model)
        scheduler = SCHEDULERS[name](optimizer)
        state = TrainerState(model, scheduler=scheduler)
        return optimizer, scheduler, state, bound(state, optimizer)

    def advance(optimizer, scheduler):
        optimizer.step()
        scheduler.step()
        group = optimizer.param_groups[0]
        return group["lr"], group["momentum"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer, scheduler, state, _ = build()
        for _ in range(5):
            advance(optimizer, scheduler)
        data = state()
        expected = [advance(optimizer, scheduler) for _ in range(12)]
        optimizer, scheduler, state, _ = build()
        state.restore(data)
        assert [advance(optimizer, scheduler) for _ in range(12)] == expected


def test_a_scheduler_that_does_not_step_each_time_is_noticed():
    model = torch.nn.Linear(2, 2)
    optimizer = make_sgd(model)
    scheduler = lr.StepLR(optimizer, 3)
    state = TrainerState(model, scheduler=scheduler)
    store = bound(state, optimizer)
    state()
    state()  # a step that is tried again
    store.sequence = 1
    with pytest.raises(RuntimeError, match="did not step between two steps"):
        state()
    optimizer.step()
    scheduler.step()
    store.sequence = 2
    state()


def test_generators_of_every_kind_come_back():
    model = torch.nn.Linear(2, 2)
    own = {"a": torch.Generator(), "b": random.Random(3), "c": numpy.random.default_rng(4)}

    def draw():
        return (
            random.random(), random.gauss(0, 1), numpy.random.rand(), numpy.random.randn(),
            torch.rand(1).item(), torch.rand(1, generator=own["a"]).item(), own["b"].random(),
            own["c"].random(),
        )

    state = TrainerState(model, **own)
    bound(state, make_sgd(model))
    draw()
    data = state()
    expected = [draw() for _ in range(3)]
    state.restore(data)
    assert [draw() for _ in range(3)] == expected


class Accelerator:
    """A device module as torch's, with one generator a device."""

    def __init__(self):
        self.states = {0: torch.tensor([7], dtype=torch.uint8), 1: torch.tensor([8],
                                                                               dtype=torch.uint8)}

    def get_rng_state(self, device):
        return self.states[device.index].clone()

    def set_rng_state(self, state, device):
        self.states[device.index] = state


def test_generators_of_devices_are_matched_by_their_order(monkeypatch):
    from momentd.torch import random_state

    accelerator = Accelerator()
    monkeypatch.setattr(random_state, "_module", lambda device: accelerator)
    saved = blob.decode(blob.encode(random_state.capture([torch.device("cuda", 1)])))
    random_state.restore(saved, [torch.device("cuda", 0)])
    assert accelerator.states[0].item() == 8
    with pytest.raises(RuntimeError, match=r"generators on \['cuda'\], this one on \[\]"):
        random_state.restore(saved, [])


def test_values_and_hyperparameters_come_back():
    model = torch.nn.Linear(2, 2)
    optimizer = make_sgd(model)
    optimizer.param_groups[0]["initial_lr"] = numpy.float64(0.25)
    state = TrainerState(model)
    state.values["epoch"] = 3
    bound(state, optimizer)
    data = state()
    state.values = {"epoch": 5, "best": 1.0}
    optimizer.param_groups[0].update(lr=0.1, initial_lr=0.0, momentum=0.0)
    state.restore(data)
    group = optimizer.param_groups[0]
    assert state.values == {"epoch": 3}
    assert (group["lr"], group["initial_lr"], group["momentum"]) == (0.5, 0.25, 0.9)


def test_a_tensor_as_learning_rate_stays_that_tensor():
    model = torch.nn.Linear(2, 2)
    rate = torch.tensor(0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    state = TrainerState(model)
    bound(state, optimizer)
    data = state()
    rate.fill_(0.1)
    state.restore(data)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.5


def test_other_objects_than_before_are_named():
    model = torch.nn.Linear(2, 2)
    state = TrainerState(model, ema=torch.nn.Linear(1, 1))
    bound(state, make_sgd(model))
    other = TrainerState(model)
    bound(other, make_sgd(model))
    with pytest.raises(RuntimeError, match=r"\['ema'\]; registered now: \[\]"):
        other.restore(state())
    groups = TrainerState(model, ema=torch.nn.Linear(1, 1))
    bound(groups, torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=1.0))
    with pytest.raises(RuntimeError, match="1 parameter groups, this one has 2"):
        groups.restore(state())


@pytest.mark.parametrize("value", [object(), 5, [1]], ids=repr)
def test_objects_without_a_state_are_refused(value):
    with pytest.raises(TypeError, match="thing is of type"):
        TrainerState(thing=value)


def test_an_object_may_be_named_again_but_not_replaced():
    generator = torch.Generator()
    scheduler = lr.StepLR(make_sgd(torch.nn.Linear(1, 1)), 3)
    state = TrainerState(a=generator, scheduler=scheduler)
    state.register(a=generator, scheduler=[scheduler])
    assert state.schedulers == [scheduler]
    with pytest.raises(ValueError, match="another a is registered"):
        state.register(a=torch.Generator())


def test_a_plain_loader_is_refused():
    with pytest.raises(TypeError, match="StatefulDataLoader"):
        TrainerState(loader=torch.utils.data.DataLoader([1, 2]))


class Stateful(torch.utils.data.DataLoader):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class StatefulSampler(torch.utils.data.Sampler):
    """As torchdata's: it keeps the state of its generator."""

    def __init__(self, generator):
        self.generator = generator

    def __iter__(self):
        return iter([])


def test_a_loader_whose_later_epochs_would_differ_is_refused():
    generator = torch.Generator()
    with pytest.raises(ValueError, match="sampler=torchdata"):
        TrainerState(loader=Stateful([1, 2], generator=generator, shuffle=True))
    with pytest.raises(ValueError, match="sampler=torchdata"):
        TrainerState(
            loader=Stateful([1, 2], generator=generator, sampler=StatefulSampler(generator))
        )
    TrainerState(
        loader=Stateful([1, 2], generator=generator, sampler=StatefulSampler(torch.Generator()))
    )


def test_a_loader_that_draws_from_the_global_generator_is_refused():
    with pytest.raises(ValueError, match="generator=torch.Generator"):
        TrainerState(loader=Stateful([1, 2]))
    TrainerState(loader=Stateful([1, 2], generator=torch.Generator()))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        self.head = torch.nn.Linear(4, 2).requires_grad_(False)
        self.register_buffer("cache", torch.zeros(2), persistent=False)


def make_state(net, **arguments):
    state = TrainerState(net, **arguments)
    bound(state, torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1.0))
    return state


def test_persistent_buffers_must_be_named():
    with pytest.raises(ValueError, match='buffer, body.1.running_mean.*keep=.*rebuilt='):
        make_state(Net())
    with pytest.raises(ValueError, match="body.1.num_batches_tracked"):
        make_state(Net(), keep="body.1.running_*")
    make_state(Net(), keep="*")
    make_state(Net(), rebuilt=["body.1.*"])
    make_state(Net(), keep="body.1.running_*", rebuilt="*.num_batches_tracked")
    with pytest.raises(ValueError, match="'nothing.*' names no"):
        make_state(Net(), keep=["*", "nothing.*"])


def test_kept_buffers_and_parameters_come_back():
    net = Net()
    state = make_state(net, keep="*")
    net.body(torch.randn(5, 3))
    data = state()
    expected = {name: value.clone() for name, value in net.state_dict().items()}
    other = Net()
    restored = make_state(other, keep="*")
    restored.restore(data)
    for name in ("body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked",
                 "head.weight", "head.bias"):
        assert torch.equal(other.state_dict()[name], expected[name]), name
    assert restored.kept_bytes()["body.1.running_mean"] == 16
    wrong = make_state(Net(), keep="body.1.*")
    with pytest.raises(RuntimeError, match="head.bias"):
        wrong.restore(data)


def test_frozen_parameters_must_be_the_same():
    torch.manual_seed(0)
    net = Net()
    data = make_state(net, keep="body.*")()
    with pytest.raises(RuntimeError, match="frozen parameter head.weight is not what it was"):
        make_state(Net(), keep="body.*").restore(data)
    torch.manual_seed(0)
    make_state(Net(), keep="body.*").restore(data)
    free = make_state(Net(), keep="body.*", rebuilt="head.*")
    free.restore(make_state(net, keep="body.*", rebuilt="head.*")())


def test_frozen_parameters_must_not_change_between_steps():
    net = Net()
    state = make_state(net, keep="body.*")
    state()
    with torch.no_grad():
        net.head.bias.add_(0.0)
    state()
    with torch.no_grad():
        net.head.bias.add_(1.0)
    with pytest.raises(RuntimeError, match="head.bias changed between two steps"):
        state()


def test_parameters_may_be_unfrozen_and_frozen_again():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    state = TrainerState(net, keep="body.*")
    bound(state, optimizer)
    state()
    net.head.requires_grad_(True)
    with torch.no_grad():
        net.head.bias.add_(1.0)
    state()
    net.head.requires_grad_(False)
    state()


def test_a_state_without_an_optimizer_says_what_to_do():
    with pytest.raises(RuntimeError, match="momentd.resume"):
        TrainerState()()
