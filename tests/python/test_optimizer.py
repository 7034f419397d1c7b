"""momentd.torch.AdamW and Adam beside torch's, bit for bit, over a private daemon."""

import random

import pytest

torch = pytest.importorskip("torch")

import momentd.torch  # noqa: E402
from conftest import Pair  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)


def make_model(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(31, 67), nn.Tanh(), nn.Linear(67, 13), nn.LayerNorm(13))
    return model.to(dtype)


def make_loss(seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(16, 31, generator=generator)

    def loss(model):
        return model(inputs.to(next(model.parameters()).dtype)).float().square().mean()

    return loss


def make_pair(daemon, kind="AdamW", model=None, groups=None, job="job", ours=None, **arguments):
    """`groups(model)` gives the parameter groups; `ours` are arguments of momentd alone."""
    groups = groups or (lambda model: model.parameters())
    return Pair(
        model or make_model(),
        lambda model: getattr(momentd.torch, kind)(
            groups(model), job=job, socket=daemon.socket, module=model, **arguments, **(ours or {})
        ),
        lambda model: getattr(torch.optim, kind)(groups(model), **arguments),
    )


@pytest.mark.parametrize("kind", ["AdamW", "Adam"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"lr": 3e-2, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.3},
        {"lr": 1e-2, "weight_decay": 0.0, "maximize": True},
        {"lr": 1e-2, "weight_decay": 0.1, "foreach": True},
    ],
)
def test_equals_torch(daemon, kind, arguments):
    pair = make_pair(daemon, kind, **arguments)
    for step in range(8):
        pair.step(make_loss(step))
        pair.assert_equal()
    assert pair.ours.sequence == 8


def test_adam_with_decoupled_weight_decay_is_adamw(daemon):
    pair = Pair(
        make_model(),
        lambda model: momentd.torch.Adam(
            model.parameters(),
            lr=1e-2,
            weight_decay=0.1,
            decoupled_weight_decay=True,
            job="job",
            socket=daemon.socket,
            module=model,
        ),
        lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1),
    )
    for step in range(3):
        pair.step(make_loss(step))
    pair.assert_equal()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_parameters_equal_fp32_mains(daemon, dtype):
    """Fifty steps: moments that were rounded through the parameter's type would drift."""
    pair = make_pair(daemon, model=make_model(dtype), lr=1e-2)
    for step in range(50):
        pair.step(make_loss(step))
    pair.assert_equal()


def test_buckets_of_any_size_give_the_same_bits(daemon):
    pairs = [
        make_pair(daemon, job=f"job{size}", lr=1e-2, ours={"bucket_elements": size})
        for size in (0, 1000, 300)
    ]
    for step in range(4):
        for pair in pairs:
            pair.step(make_loss(step))
    for pair in pairs:
        pair.assert_equal()


def test_groups_members_and_schedulers(daemon):
    def groups(model):
        layers = list(model)
        return [
            {"params": layers[0].parameters(), "lr": 1e-2, "weight_decay": 0.5},
            {"params": layers[2].parameters(), "betas": (0.5, 0.9)},
            {"params": layers[3].parameters(), "eps": 1e-4, "member": "opt0_1"},
        ]

    pair = make_pair(daemon, groups=groups, lr=3e-3)
    schedulers = [
        torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.1, 0.05, 0.02], total_steps=12)
        for optimizer in (pair.ours, pair.theirs)
    ]
    for step in range(10):
        pair.step(make_loss(step))
        for scheduler in schedulers:
            scheduler.step()
        pair.assert_equal()
    assert pair.ours.param_groups[0]["lr"] == pair.theirs.param_groups[0]["lr"]


def test_gradients_that_are_missing_leave_their_tensor_and_its_t_alone(daemon):
    pair = make_pair(daemon, lr=1e-2, weight_decay=0.1)
    choose = random.Random(5)
    for step in range(12):
        pair.gradients(make_loss(step))
        for parameter, master in pair.both():
            if choose.random() < 0.4:
                parameter.grad = master.grad = None
        pair.ours.step()
        pair.theirs.step()
        pair.assert_equal()


def test_a_step_without_any_gradient_changes_nothing(daemon):
    pair = make_pair(daemon)
    pair.step(make_loss(0))
    pair.model.zero_grad()
    pair.masters.zero_grad()
    pair.ours.step()
    pair.theirs.step()
    pair.assert_equal()
    pair.step(make_loss(1))
    pair.assert_equal()


def test_frozen_parameters_are_not_touched(daemon):
    model = make_model()
    model[0].weight.requires_grad_(False)
    pair = make_pair(daemon, model=model, lr=1e-2)
    before = model[0].weight.detach().clone()
    for step in range(4):
        pair.step(make_loss(step))
    pair.assert_equal()
    assert torch.equal(model[0].weight, before)


def test_a_parameter_frozen_later_sits_out(daemon):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(6):
        if step == 2:
            pair.model[0].requires_grad_(False)
        if step == 4:
            pair.model[0].requires_grad_(True)
        pair.step(make_loss(step))
        pair.assert_equal()


def test_a_parameter_unfrozen_later_joins(daemon):
    model = make_model()
    model[0].requires_grad_(False)
    pair = make_pair(daemon, model=model, lr=1e-2)
    for step in range(6):
        if step == 3:
            pair.model[0].requires_grad_(True)
        pair.step(make_loss(step))
        pair.assert_equal()


def test_a_group_added_later_joins(daemon):
    pair = make_pair(daemon, groups=lambda model: model[0].parameters(), lr=1e-2)
    for step in range(6):
        if step == 3:
            pair.ours.add_param_group({"params": pair.model[2].parameters(), "lr": 0.1})
            pair.theirs.add_param_group({"params": pair.masters[2].parameters(), "lr": 0.1})
        pair.step(make_loss(step))
        pair.assert_equal()


def change_clamp(model):
    with torch.no_grad():
        model[0].weight.clamp_(-0.05, 0.05)


def change_load_state_dict(model):
    model.load_state_dict(make_model(seed=9).state_dict())


def change_data(model):
    model[2].weight.data = model[2].weight.data * 0.5


def change_init(model):
    torch.manual_seed(3)
    nn.init.normal_(model[2].weight)


@pytest.mark.parametrize(
    "change", [change_clamp, change_load_state_dict, change_data, change_init]
)
def test_parameters_changed_outside_of_the_step_are_noticed(daemon, change):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(6):
        if step in (0, 3, 4):
            change(pair.model)
            change(pair.masters)
        pair.step(make_loss(step))
        pair.assert_equal()


def test_own_writes_are_no_change_from_outside(daemon, monkeypatch):
    pair = make_pair(daemon)
    pair.step(make_loss(0))
    monkeypatch.setattr(
        momentd.Store, "refresh", lambda *_: pytest.fail("nothing was changed outside")
    )
    for step in range(3):
        pair.step(make_loss(step))


def test_only_changed_parameters_are_refreshed(daemon, monkeypatch):
    pair = make_pair(daemon)
    pair.step(make_loss(0))
    refreshed = []
    refresh = momentd.Store.refresh

    def watch(store, tensors):
        refreshed.append(list(tensors))
        return refresh(store, tensors)

    monkeypatch.setattr(momentd.Store, "refresh", watch)
    with torch.no_grad():
        pair.model[2].bias.add_(1)
    pair.ours.step()
    assert refreshed == [[3]]


def test_explicit_refresh_finds_what_torch_does_not_count(daemon):
    pair = make_pair(daemon, lr=1e-2)
    pair.step(make_loss(0))
    for model in (pair.model, pair.masters):
        model[0].weight.data.mul_(0.5)
    pair.ours.refresh([pair.model[0].weight])
    pair.step(make_loss(1))
    pair.assert_equal()


def test_autograd_sees_the_step_as_an_in_place_change(daemon):
    pair = make_pair(daemon)
    loss = pair.model(torch.randn(4, 31)).sum()
    loss.backward(retain_graph=True)
    pair.ours.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_strided_parameters_and_gradients(daemon):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.transposed = nn.Parameter(torch.randn(7, 5).t())
            self.convolution = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)

        def forward(self, inputs):
            return (inputs @ self.transposed).sum() + self.convolution(
                inputs[:, :3].reshape(-1, 3, 1, 1).expand(-1, 3, 4, 4)
            ).square().sum()

    pair = make_pair(daemon, model=Model(), lr=1e-2)
    assert not pair.model.transposed.is_contiguous()
    inputs = torch.randn(5, 5)
    for _ in range(4):
        pair.step(lambda model: model(inputs))
        pair.assert_equal()


def test_gradients_that_are_views_with_strides(daemon):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(3):
        pair.gradients(make_loss(step))
        for parameter, master in pair.both():
            wide = torch.zeros(*parameter.shape, 2)
            wide[..., 0] = parameter.grad
            parameter.grad = wide[..., 0]
        pair.ours.step()
        pair.theirs.step()
        pair.assert_equal()


def test_scalars_and_empty_tensors(daemon):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scalar = nn.Parameter(torch.tensor(2.0))
            self.empty = nn.Parameter(torch.zeros(0, 5))
            self.last = nn.Parameter(torch.ones(3))

    pair = make_pair(daemon, model=Model(), lr=1e-2)
    for _ in range(3):
        pair.step(lambda model: model.scalar**2 + model.empty.sum() + model.last.square().sum())
        pair.assert_equal()


def test_gradients_are_unchanged_after_a_step(daemon):
    pair = make_pair(daemon, ours={"bucket_elements": 300})
    pair.gradients(make_loss(0))
    pair.model[2].weight.grad = None
    before = {
        name: parameter.grad.clone()
        for name, parameter in pair.model.named_parameters()
        if parameter.grad is not None
    }
    pair.ours.step()
    for name, parameter in pair.model.named_parameters():
        if name in before:
            assert torch.equal(parameter.grad, before[name])
        else:
            assert parameter.grad is None


def test_closures_and_the_random_state(daemon):
    pair = make_pair(daemon)
    torch.manual_seed(7)
    random.seed(7)
    before = torch.get_rng_state(), random.getstate()

    def closure():
        assert torch.is_grad_enabled()
        pair.gradients(make_loss(0))
        return 42

    assert pair.ours.step(closure) == 42
    pair.ours.flush()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_hooks_and_zero_grad_are_torchs(daemon):
    pair = make_pair(daemon)
    calls = []
    pair.ours.register_step_pre_hook(lambda *_: calls.append("before"))
    pair.ours.register_step_post_hook(lambda *_: calls.append("after"))
    pair.step(make_loss(0))
    assert calls == ["before", "after"]
    pair.ours.zero_grad()
    assert all(parameter.grad is None for parameter in pair.model.parameters())


def test_jobs_of_one_daemon_are_isolated(daemon):
    pairs = [make_pair(daemon, model=make_model(seed=i), job=f"job {i}/ü") for i in range(2)]
    for step in range(5):
        for index, pair in enumerate(pairs):
            pair.step(make_loss(10 * index + step))
    for pair in pairs:
        pair.assert_equal()
        assert pair.ours.sequence == 5


def test_a_second_optimizer_is_another_role(daemon):
    actor = make_pair(daemon, ours={"role": "actor"}, lr=1e-2)
    critic = make_pair(daemon, model=make_model(seed=4), ours={"role": "critic"}, lr=1e-3)
    for step in range(3):
        actor.step(make_loss(step))
        critic.step(make_loss(step))
    actor.assert_equal()
    critic.assert_equal()
    with pytest.raises(momentd.Error, match="ALREADY_EXISTS"):
        make_pair(daemon, ours={"role": "actor", "resume": "auto"}).ours.open()


def test_narrow_moments_are_bounded(daemon):
    """Tiny gradients, then none: no blow-up with the moments that are offered."""
    for exp_avg, exp_avg_sq in [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)]:
        parameter = nn.Parameter(torch.ones(64))
        optimizer = momentd.torch.AdamW(
            [parameter],
            lr=1e-2,
            weight_decay=0,
            job=f"{exp_avg} {exp_avg_sq}",
            socket=daemon.socket,
            exp_avg_dtype=exp_avg,
            exp_avg_sq_dtype=exp_avg_sq,
        )
        for step in range(60):
            parameter.grad = torch.full((64,), 1e-5 if step < 30 else 0.0)
            before = parameter.detach().clone()
            optimizer.step()
            assert (parameter.detach() - before).abs().max() <= 2e-2


def test_many_tensors_with_long_names(daemon):
    """More than gRPC's default of 4 MiB a message."""
    parameters = [
        (f"{index} / ü {'x' * 500}", nn.Parameter(torch.ones(2))) for index in range(10000)
    ]
    optimizer = momentd.torch.AdamW(parameters, lr=0.25, job="many", socket=daemon.socket)
    for _, parameter in parameters:
        parameter.grad = torch.ones(2)
    optimizer.step()
    assert optimizer.sequence == 1
    expected = torch.ones(2) * (1 - 0.25 * 0.01) - 0.25
    for _, parameter in parameters:
        assert torch.allclose(parameter.detach(), expected)
