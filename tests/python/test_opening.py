"""When the store is opened, with which parameters, and under which names."""

import gc
import logging
import os
import subprocess

import pytest

torch = pytest.importorskip("torch")

import momentd  # noqa: E402
import momentd.torch  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402
from torch import nn  # noqa: E402


@pytest.fixture
def openings(monkeypatch):
    """The names of the tensors of each opening."""
    seen = []
    opening = momentd.Store.__init__

    def watch(store, options):
        seen.append([tensor.name for tensor in options.tensors])
        opening(store, options)

    monkeypatch.setattr(momentd.Store, "__init__", watch)
    return seen


def names(optimizer):
    optimizer.open()
    return [slot.name for slot in optimizer._session.slots]


def gradients(model, value=1.0):
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value)


def test_the_constructor_only_asks_for_a_daemon(daemon, openings):
    pair = make_pair(daemon)
    pair.ours.zero_grad()
    repr(pair.ours)
    pair.ours.close()
    assert openings == []


@pytest.mark.parametrize(
    "call",
    [
        lambda optimizer: optimizer.step(),
        lambda optimizer: optimizer.resume(),
        lambda optimizer: optimizer.skip(),
        lambda optimizer: optimizer.sequence,
        lambda optimizer: optimizer.open(),
    ],
)
def test_what_needs_the_store_opens_it_once(daemon, openings, call):
    pair = make_pair(daemon)
    gradients(pair.model)
    call(pair.ours)
    call(pair.ours)
    assert len(openings) == 1


def test_an_opening_that_failed_is_tried_again(daemon):
    other = make_pair(daemon, job="shared")
    other.ours.open()
    pair = make_pair(daemon, job="shared", ours={"resume": "auto"})
    with pytest.raises(momentd.Error, match="ALREADY_EXISTS"):
        pair.ours.open()
    other.ours.close()
    pair.step(make_loss(0))
    pair.assert_equal()


def test_the_session_ends_with_the_last_reference_to_the_optimizer(daemon):
    model = make_model()
    torch.optim.AdamW(model.parameters())  # the first one stays in what torch imports for it
    gc.disable()
    try:
        for resume in ("never", "must"):
            optimizer = momentd.torch.AdamW(
                model.parameters(), job="job", socket=daemon.socket, module=model, resume=resume
            )
            assert optimizer.state
            optimizer.resume()
            gradients(model)
            optimizer.step()
            del optimizer
    finally:
        gc.enable()


def test_parameters_swapped_before_the_first_step(daemon, openings):
    """What accelerate does with FSDP2: placeholders in the groups while the model is wrapped, then
    the wrapped model's parameters in their places."""
    pair = make_pair(daemon, lr=1e-2)
    (group,) = pair.ours.param_groups
    for index, parameter in enumerate(group["params"]):
        group["params"][index] = torch.empty_like(parameter)
    for layer in pair.model:
        for name, parameter in list(layer.named_parameters()):
            setattr(layer, name, nn.Parameter(parameter.detach().clone()))
    group["params"] = list(pair.model.parameters())
    for step in range(3):
        pair.step(make_loss(step))
        pair.assert_equal()
    assert openings == [[name for name, _ in pair.model.named_parameters()]]


def test_swapped_parameters_that_the_module_does_not_have_keep_the_names_of_their_places(daemon):
    model = make_model()
    optimizer = momentd.torch.AdamW(
        model.parameters(), job="job", socket=daemon.socket, module=model
    )
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
    optimizer.param_groups[0]["params"] = copies
    assert names(optimizer) == [name for name, _ in model.named_parameters()]


def test_parameters_cannot_be_swapped_after_the_first_step(daemon):
    pair = make_pair(daemon)
    pair.step(make_loss(0))
    stranger = nn.Parameter(pair.model[0].weight.detach().clone())
    stranger.grad = torch.ones_like(stranger)
    pair.ours.param_groups[0]["params"][0] = stranger
    with pytest.raises(RuntimeError, match="does not know"):
        pair.ours.step()


def test_memory_of_a_freed_parameter_is_never_written(daemon):
    """However often the step is tried: whatever lies there now is not the parameter's."""
    pair = make_pair(daemon)
    pair.step(make_loss(0))
    freed = pair.model[0].weight
    values, size = freed.detach().clone(), freed.untyped_storage().nbytes()
    freed.grad = torch.ones_like(freed)
    freed.untyped_storage().resize_(0)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="its storage was freed"):
            pair.ours.step()
    with pytest.raises(RuntimeError, match="its storage was freed"):
        pair.ours.resume()
    freed.untyped_storage().resize_(size)
    with torch.no_grad():
        freed.copy_(values)
    pair.step(make_loss(1))
    pair.assert_equal()


def test_parameters_that_moved_are_brought_back_where_they_are(daemon):
    pair = make_pair(daemon)
    pair.step(make_loss(0))
    expected = [parameter.detach().clone() for parameter in pair.model.parameters()]
    old = [parameter.data for parameter in pair.model.parameters()]
    for parameter in pair.model.parameters():
        parameter.data = torch.zeros_like(parameter)
    for data in old:
        data.fill_(7.0)
    pair.ours.resume()
    assert all(torch.equal(p, e) for p, e in zip(pair.model.parameters(), expected))
    assert all((data == 7.0).all() for data in old)


def test_a_group_grown_by_hand_is_named(daemon):
    pair = make_pair(daemon)
    pair.ours.param_groups[0]["params"].append(nn.Parameter(torch.ones(1)))
    with pytest.raises(RuntimeError, match="add_param_group"):
        pair.ours.open()


def test_parameters_frozen_before_the_first_step_have_no_state_until_they_are_unfrozen(
    daemon, openings
):
    pair = make_pair(daemon, lr=1e-2)
    pair.model[0].requires_grad_(False)
    pair.masters[0].requires_grad_(False)
    pair.step(make_loss(0))
    pair.model[0].requires_grad_(True)
    pair.masters[0].requires_grad_(True)
    for step in range(1, 4):
        pair.step(make_loss(step))
        pair.assert_equal()
    assert [len(opening) for opening in openings] == [4, 6]


def test_groups_added_before_and_after_the_first_step(daemon, openings):
    pair = make_pair(daemon, groups=lambda model: model[0].parameters(), lr=1e-2)
    for step, layer in enumerate([2, 3]):
        pair.ours.add_param_group({"params": pair.model[layer].parameters(), "lr": 0.1})
        pair.theirs.add_param_group({"params": pair.masters[layer].parameters(), "lr": 0.1})
        pair.step(make_loss(step))
        pair.assert_equal()
    assert [len(opening) for opening in openings] == [4, 6]


def test_a_group_that_is_refused_is_not_taken(daemon):
    pair = make_pair(daemon, groups=lambda model: model[0].parameters(), lr=1e-2)
    pair.step(make_loss(0))
    with pytest.raises(ValueError, match="not one of `module`"):
        pair.ours.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    assert len(pair.ours.param_groups) == 1
    pair.ours.add_param_group({"params": pair.model[2].parameters()})
    pair.theirs.add_param_group({"params": pair.masters[2].parameters()})
    pair.step(make_loss(1))
    pair.assert_equal()


def test_names_come_from_the_module_or_the_groups_or_are_positions(daemon):
    model = make_model()
    common = {"socket": daemon.socket}
    expected = [name for name, _ in model.named_parameters()]
    adamw = momentd.torch.AdamW
    assert names(adamw(model.parameters(), job="module", module=model, **common)) == expected
    assert names(adamw(model.named_parameters(), job="named", **common)) == expected
    groups = [{"params": model[at].named_parameters(str(at))} for at in (0, 2, 3)]
    assert names(adamw(groups, job="groups", **common)) == expected
    positions = [f"{index:06d}" for index in range(6)]
    assert names(adamw(model.parameters(), job="plain", **common)) == positions


def test_two_parameters_of_one_name_are_refused_at_once():
    model = make_model()
    groups = [{"params": model[at].named_parameters()} for at in (0, 2)]
    with pytest.raises(ValueError, match="two parameters are named 'weight'"):
        momentd.torch.AdamW(groups, job="job")


def test_names_do_not_tell_how_the_module_is_wrapped(daemon):
    model = make_model()
    expected = [name for name, _ in model.named_parameters()]
    compiled = torch.compile(model)
    for job, wrapped in [("compiled", compiled), ("parallel", nn.DataParallel(compiled))]:
        optimizer = momentd.torch.AdamW(
            wrapped.parameters(), job=job, socket=daemon.socket, module=wrapped
        )
        assert names(optimizer) == expected


def test_positions_for_names_are_said_once_and_shown(daemon, caplog):
    model = make_model()
    optimizer = momentd.torch.AdamW(model.parameters(), job="plain", socket=daemon.socket)
    named = momentd.torch.AdamW(model.named_parameters(), job="named", socket=daemon.socket)
    with caplog.at_level(logging.WARNING, logger="momentd.torch"):
        for one in (optimizer, named):
            gradients(model)
            one.step()
            one.step()
    (record,) = caplog.records
    assert "'plain'" in record.getMessage() and "positions" in record.getMessage()
    optimizer.close()
    named.close()
    assert "positional" in inspect(daemon, "plain")
    assert "positional" not in inspect(daemon, "named")


def inspect(daemon, job):
    program = os.environ["MOMENTCTL_BINARY"]
    return subprocess.run(
        [program, "inspect", f"{job}/model/0", "--socket-dir", os.path.dirname(daemon.socket)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
