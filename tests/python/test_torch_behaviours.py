"""What torch documents of its optimizers, one behaviour a test; docs/reference/torch.md lists them."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

import momentd.torch  # noqa: E402
import torch.optim.optimizer as torch_optimizer  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402
from torch import nn  # noqa: E402


def make_scaler():
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)


def scaled_step(scaler, model, optimizer, loss, overflow=False, clip=None):
    optimizer.zero_grad()
    scaler.scale(loss(model)).backward()
    if overflow:
        next(model.parameters()).grad[0] = float("inf")
    if clip is not None:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("clip", [None, 0.1])
def test_grad_scaler_steps_only_where_nothing_overflowed(daemon, clip):
    pair = make_pair(daemon, lr=1e-2, weight_decay=0.1)
    scalers = make_scaler(), make_scaler()
    overflowing = {2, 3, 7}
    for step in range(10):
        for scaler, model, optimizer in (
            (scalers[0], pair.model, pair.ours),
            (scalers[1], pair.masters, pair.theirs),
        ):
            scaled_step(scaler, model, optimizer, make_loss(step), step in overflowing, clip)
        pair.assert_equal()
        assert scalers[0].state_dict() == scalers[1].state_dict()
    # As in torch, step() is not called for an overflow, so the sequence does not count it.
    assert pair.ours.sequence == 10 - len(overflowing)
    assert scalers[0].get_scale() < 2.0**10


def test_grad_scaler_unscales_for_it(daemon):
    """Otherwise Lightning refuses to clip, and the daemon would have to."""
    assert not hasattr(make_pair(daemon).ours, "_step_supports_amp_scaling")


def test_gradients_may_be_accumulated(daemon):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(4):
        for model in (pair.model, pair.masters):
            model.zero_grad()
            for part in range(3):
                (make_loss(3 * step + part)(model) / 3).backward()
        pair.ours.step()
        pair.theirs.step()
        pair.assert_equal()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(daemon, set_to_none):
    pair = make_pair(daemon, lr=1e-2, weight_decay=0.1)
    pair.step(make_loss(0))
    for optimizer, model in ((pair.ours, pair.model), (pair.theirs, pair.masters)):
        optimizer.zero_grad(set_to_none=set_to_none)
        gradients = [parameter.grad for parameter in model.parameters()]
        assert all(grad is None if set_to_none else not grad.any() for grad in gradients)
        optimizer.step()
    pair.assert_equal()
    assert pair.ours.state[pair.model[0].weight]["step"] == (1 if set_to_none else 2)


def test_a_tensor_counts_as_the_number_it_holds(daemon):
    """torch itself rounds what it computes of tensors to fp32: another last place."""
    lr, betas = torch.tensor(1e-2), (torch.tensor(0.8), torch.tensor(0.95))
    pair = make_pair(daemon, lr=lr, betas=betas)
    pair.theirs.param_groups[0]["betas"] = tuple(float(beta) for beta in betas)
    for step in range(4):
        pair.theirs.param_groups[0]["lr"] = float(lr)
        pair.step(make_loss(step))
        lr.mul_(0.9)
        pair.assert_equal()


@pytest.mark.parametrize(
    "arguments",
    [
        {"lr": torch.tensor(1e-2), "foreach": True},
        {"betas": (torch.tensor(0.9), torch.tensor(0.9)), "foreach": True},
        {"lr": torch.ones(2)},
    ],
)
def test_tensors_are_refused_where_torch_refuses_them(arguments):
    parameters = [nn.Parameter(torch.ones(1))]
    with pytest.raises(ValueError) as theirs:
        torch.optim.AdamW(parameters, **arguments)
    with pytest.raises(ValueError) as ours:
        momentd.torch.AdamW(parameters, job="job", **arguments)
    assert str(ours.value) == str(theirs.value)


def test_step_hooks_may_change_the_arguments(daemon):
    pair = make_pair(daemon)
    calls = []

    def before(optimizer, args, kwargs):
        calls.append("before")
        return args, {**kwargs, "blob": b"from the hook"}

    pair.ours.register_step_pre_hook(before)
    pair.ours.register_step_post_hook(lambda *_: calls.append("after"))
    everywhere = [
        torch_optimizer.register_optimizer_step_pre_hook(
            lambda *_: calls.append("everywhere before")
        ),
        torch_optimizer.register_optimizer_step_post_hook(
            lambda *_: calls.append("everywhere after")
        ),
    ]
    try:
        pair.gradients(make_loss(0))
        pair.ours.step()
    finally:
        for handle in everywhere:
            handle.remove()
    assert calls == ["everywhere before", "before", "after", "everywhere after"]
    pair.ours.close()
    resumed = make_pair(daemon, ours={"resume": "must"})
    assert resumed.ours.resume() == b"from the hook"


def test_the_profiler_sees_the_steps(daemon):
    pair = make_pair(daemon)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        pair.step(make_loss(0))
        pair.ours.zero_grad()
    names = {event.key for event in profile.key_averages()}
    assert {"Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad"} <= names


def test_schedulers_know_that_it_has_stepped(daemon, recwarn):
    pair = make_pair(daemon)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(pair.ours, gamma=0.5)
    pair.step(make_loss(0))
    scheduler.step()
    assert pair.ours.param_groups[0]["lr"] == 0.5e-3
    assert not [warning for warning in recwarn if "lr_scheduler" in str(warning.message)]


@pytest.mark.parametrize("what", ["model", "step"])
def test_torch_compile(daemon, what):
    """A compiled model trains; a compiled step runs uncompiled: what it does is not torch's."""
    pair = make_pair(daemon, lr=1e-2)
    compiled = torch.compile(pair.model, backend="eager")
    step = torch.compile(pair.ours.step, backend="eager") if what == "step" else pair.ours.step
    for number in range(3):
        pair.gradients(lambda model: make_loss(number)(compiled if model is pair.model else model))
        for parameter, master in pair.both():
            master.grad = parameter.grad.clone()
        step()
        pair.theirs.step()
        pair.assert_equal()
    assert pair.ours.sequence == 3


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(daemon, opened, copying):
    """Two optimizers cannot share a store, and a copy of the state has no place to be."""
    pair = make_pair(daemon)
    if opened:
        pair.step(make_loss(0))
    with pytest.raises(TypeError, match="state_dict"):
        copying(pair.ours)


def test_models_are_copied_as_ever(daemon):
    pair = make_pair(daemon, lr=1e-2)
    averaged = torch.optim.swa_utils.AveragedModel(pair.model)
    for step in range(3):
        pair.step(make_loss(step))
        averaged.update_parameters(pair.model)
    pair.assert_equal()
    assert averaged.n_averaged == 3


def test_weights_that_are_swapped_for_an_average_and_back(daemon):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(3):
        pair.step(make_loss(step))
        for model in (pair.model, pair.masters):
            kept = copy.deepcopy(model.state_dict())
            model.load_state_dict({name: value * 0.5 for name, value in kept.items()})
            model.load_state_dict(kept)
    pair.assert_equal()


def test_looks_like_torchs(daemon):
    pair = make_pair(daemon, lr=1e-2)
    assert isinstance(pair.ours, torch.optim.Optimizer)
    assert repr(pair.ours) == repr(pair.theirs)
    assert pair.ours.param_groups[0].keys() == pair.theirs.param_groups[0].keys()
    assert pair.ours.defaults == pair.theirs.defaults
