"""`optimizer.state`: looks as torch's, reads and writes through the daemon."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")

import momentd  # noqa: E402
import momentd.torch  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402
from torch import nn  # noqa: E402


@pytest.fixture
def pair(daemon):
    pair = make_pair(daemon, lr=1e-2, weight_decay=0.1)
    for step in range(3):
        pair.step(make_loss(step))
    return pair


def assert_equal_states(pair):
    for parameter, master in pair.both():
        ours, theirs = pair.ours.state[parameter], pair.theirs.state[master]
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            assert (ours[key].dtype, ours[key].shape) == (value.dtype, value.shape)
            assert torch.equal(ours[key], value)


def test_reads_what_torch_has(pair):
    assert_equal_states(pair)
    assert len(pair.ours.state) == 6
    assert list(pair.ours.state)[0] is pair.model[0].weight
    assert pair.model[0].weight in pair.ours.state
    assert nn.Parameter(torch.ones(67, 31)) not in pair.ours.state


def test_is_true_and_readable_before_the_store_is_opened(daemon):
    pair = make_pair(daemon)
    assert pair.ours.state
    first = pair.ours.state[pair.model[0].weight]
    assert first["step"] == 0 and first["exp_avg"].shape == (67, 31)
    assert not first["exp_avg"].any()
    assert pair.ours._session.store is None


def test_16_bit_parameters_have_mains(daemon):
    pair = make_pair(daemon, model=make_model(torch.bfloat16), lr=1e-2)
    parameter = pair.model[0].weight
    assert torch.equal(pair.ours.state[parameter]["main"], parameter.detach().float())
    pair.step(make_loss(0))
    main = pair.ours.state[parameter]["main"]
    assert torch.equal(main, pair.masters[0].weight.detach())
    assert not torch.equal(main, parameter.detach().float())


def test_frozen_parameters_have_no_entry_and_strangers_none_at_all(daemon):
    model = make_model()
    model[0].requires_grad_(False)
    pair = make_pair(daemon, model=model)
    pair.step(make_loss(0))
    assert len(pair.ours.state) == 4
    assert len(pair.ours.state[model[0].weight]) == 0
    with pytest.raises(KeyError):
        pair.ours.state[nn.Parameter(torch.ones(2))]
    with pytest.raises(ValueError, match="requires no gradient"):
        pair.ours.state[model[0].weight]["step"] = 1


def test_values_that_are_assigned_count_from_the_next_step(pair):
    for optimizer, model in ((pair.ours, pair.model), (pair.theirs, pair.masters)):
        state = optimizer.state[model[0].weight]
        state["exp_avg"] = torch.full((67, 31), 0.25)
        state["step"] = torch.tensor(40.0)
        optimizer.state[model[2].weight] = {
            "step": torch.tensor(7.0),
            "exp_avg": torch.full((13, 67), 0.5),
            "exp_avg_sq": torch.full((13, 67), 2.0),
        }
        optimizer.state[model[2].bias] = {}
    assert pair.ours.state[pair.model[0].weight]["step"] == 40
    assert (pair.ours.state[pair.model[0].weight]["exp_avg"] == 0.25).all()
    for step in range(3, 6):
        pair.step(make_loss(step))
        pair.assert_equal()
    assert_equal_states(pair)


def test_a_parameter_unfrozen_later_takes_what_is_assigned(daemon):
    pair = make_pair(daemon, lr=1e-2)
    for model in (pair.model, pair.masters):
        model[0].requires_grad_(False)
    pair.step(make_loss(0))
    for optimizer, model in ((pair.ours, pair.model), (pair.theirs, pair.masters)):
        model[0].requires_grad_(True)
        optimizer.state[model[0].bias] = {
            "step": torch.tensor(7.0),
            "exp_avg": torch.full((67,), 0.5),
            "exp_avg_sq": torch.full((67,), 2.0),
        }
    for step in range(1, 4):
        pair.step(make_loss(step))
        pair.assert_equal()


def test_all_that_is_assigned_is_one_commit(pair, monkeypatch):
    calls = []
    write = momentd.Store.write
    monkeypatch.setattr(
        momentd.Store, "write", lambda *a, **k: (calls.append(a), write(*a, **k))[1]
    )
    for parameter in pair.model.parameters():
        for key in ("exp_avg", "exp_avg_sq"):
            pair.ours.state[parameter][key] = torch.zeros_like(parameter)
    assert calls == []
    pair.step(make_loss(3))
    assert len(calls) == 1


def test_what_was_assigned_last_is_in_a_state_dict_and_survives_the_end(daemon, pair):
    parameter = pair.model[0].weight
    pair.ours.state[parameter]["exp_avg"] = torch.full((67, 31), 0.25)
    assert (pair.ours.state_dict()["state"][0]["exp_avg"] == 0.25).all()
    pair.ours.state[parameter]["exp_avg"] = torch.full((67, 31), 0.5)
    pair.ours.close()
    resumed = make_pair(daemon, ours={"resume": "must"})
    resumed.ours.resume()
    assert (resumed.ours.state[resumed.model[0].weight]["exp_avg"] == 0.5).all()


def test_assigning_what_was_read_changes_nothing(pair, monkeypatch):
    monkeypatch.setattr(momentd.Store, "write", lambda *_, **__: pytest.fail("nothing changed"))
    for parameter, entries in pair.ours.state.items():
        pair.ours.state[parameter] = entries
        for key, value in entries.items():
            entries[key] = value.to("cpu")
    pair.step(make_loss(3))
    pair.assert_equal()


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.mul_(2),
        lambda value: value.view(-1).zero_(),
        lambda value: value.detach()[0].fill_(1),
        lambda value: value.__setitem__(0, 1.0),
        lambda value: value.__imul__(2),
        lambda value: torch.add(value, 1, out=value),
        lambda value: torch._foreach_mul_([value], 2),
    ],
)
def test_a_change_in_place_would_be_lost_and_is_refused(pair, change):
    value = pair.ours.state[pair.model[0].weight]["exp_avg"]
    before = copy.deepcopy(value)
    with pytest.raises(RuntimeError, match="assign"):
        change(value)
    assert torch.equal(value, before)


def test_what_is_computed_from_a_value_is_an_ordinary_tensor(pair):
    value = pair.ours.state[pair.model[0].weight]["exp_avg"]
    assert type(value * 2) is torch.Tensor
    (value * 2).mul_(3)
    assert type(value.clone()) is torch.Tensor
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert type(loaded) is torch.Tensor and torch.equal(loaded, value)


@pytest.mark.parametrize(
    "value, words",
    [
        ({"exp_avg": torch.zeros(2)}, "shape"),
        ({"exp_avg": torch.zeros(67, 31, dtype=torch.int64)}, "int64"),
        ({"step": torch.tensor(0.5)}, "whole"),
        ({"main": torch.zeros(67, 31)}, "main"),
        ({"momentum_buffer": torch.zeros(67, 31)}, "momentum_buffer"),
    ],
)
def test_values_that_do_not_fit_are_refused(pair, value, words):
    with pytest.raises((ValueError, KeyError), match=words):
        pair.ours.state[pair.model[0].weight] = value
    pair.step(make_loss(3))
    pair.assert_equal()


def test_cannot_be_emptied_or_replaced(pair):
    for change in (
        lambda: pair.ours.state.clear(),
        lambda: pair.ours.state.__delitem__(pair.model[0].weight),
        lambda: setattr(pair.ours, "state", {}),
    ):
        with pytest.raises(TypeError, match="momentd"):
            change()
    assert_equal_states(pair)
