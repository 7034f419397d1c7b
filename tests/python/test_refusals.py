"""What momentd.torch refuses, and with which words."""

import pytest

torch = pytest.importorskip("torch")

import momentd.torch  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402
from torch import nn  # noqa: E402


@pytest.mark.parametrize(
    "types", [{"exp_avg_sq_dtype": torch.float16}, {"exp_avg_dtype": torch.float8_e4m3fn}]
)
def test_moment_types_that_lose_the_update_are_refused(types):
    with pytest.raises(ValueError, match=f"{next(iter(types))}.*narrow"):
        momentd.torch.AdamW([nn.Parameter(torch.ones(1))], job="job", **types)


@pytest.mark.parametrize(
    "argument", ["amsgrad", "capturable", "differentiable", "fused"]
)
def test_what_cannot_be_kept_is_refused_with_a_reason(argument):
    for kind in (momentd.torch.AdamW, momentd.torch.Adam):
        with pytest.raises(ValueError, match=argument):
            kind([nn.Parameter(torch.ones(1))], job="job", **{argument: True})


@pytest.mark.parametrize(
    "arguments",
    [
        {"lr": -1.0},
        {"lr": float("nan")},
        {"eps": float("inf")},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, float("nan"))},
        {"weight_decay": -0.1},
    ],
)
def test_bad_hyperparameters_are_refused_at_once(arguments):
    with pytest.raises(ValueError):
        momentd.torch.AdamW([nn.Parameter(torch.ones(1))], job="job", **arguments)


def test_bad_hyperparameters_of_a_step_are_refused_and_change_nothing(daemon):
    pair = make_pair(daemon, lr=1e-2)
    pair.step(make_loss(0))
    for name, value in [("lr", float("nan")), ("eps", float("inf")), ("weight_decay", -1.0)]:
        good = pair.ours.param_groups[0][name]
        pair.ours.param_groups[0][name] = value
        with pytest.raises(momentd.Error, match="INVALID_ARGUMENT"):
            pair.ours.step()
        pair.ours.param_groups[0][name] = good
    pair.assert_equal()
    pair.step(make_loss(1))
    pair.assert_equal()


@pytest.mark.parametrize(
    "parameter",
    [
        torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.complex64),
    ],
)
def test_parameters_that_cannot_be_streamed_are_named(parameter):
    with pytest.raises(ValueError, match="000000"):
        momentd.torch.AdamW([nn.Parameter(parameter)], job="job")


def test_a_parameter_on_another_device_is_named_when_the_store_is_opened(daemon):
    parameter = nn.Parameter(torch.ones(2, device="meta"))
    optimizer = momentd.torch.AdamW([("weight", parameter)], job="job", socket=daemon.socket)
    with pytest.raises(ValueError, match="weight is on meta"):
        optimizer.open()


def test_a_parameter_of_another_module_is_named():
    with pytest.raises(ValueError, match="module"):
        momentd.torch.AdamW(make_model().parameters(), job="job", module=make_model())


@pytest.mark.parametrize(
    "argument",
    [{"resume": "perhaps"}, {"profile": "exact"}, {"commit_every": -1}, {"job": "a\0b"}],
)
def test_bad_arguments_are_refused_at_once(argument):
    with pytest.raises(ValueError):
        momentd.torch.AdamW([nn.Parameter(torch.ones(1))], **{"job": "job", **argument})


def test_a_parameter_that_changes_its_type_is_named(daemon):
    pair = make_pair(daemon)
    pair.step(make_loss(0))
    pair.model[0].bfloat16()
    with pytest.raises(RuntimeError, match=r"0\.weight"):
        pair.ours.step()


def test_sparse_gradients_are_refused_as_torch_does(daemon):
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = momentd.torch.Adam(embedding.parameters(), job="job", socket=daemon.socket)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
