"""state_dict() and load_state_dict() of momentd.torch beside torch's."""

import copy
import gc
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

import momentd  # noqa: E402
import momentd.torch  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)


def ours(daemon, model, job="job", kind="AdamW", **arguments):
    arguments = {"lr": 1e-2, "weight_decay": 0.1, **arguments}
    return getattr(momentd.torch, kind)(
        model.parameters(), job=job, socket=daemon.socket, module=model, **arguments
    )


def theirs(model, kind="AdamW", **arguments):
    arguments = {"lr": 1e-2, "weight_decay": 0.1, **arguments}
    return getattr(torch.optim, kind)(model.parameters(), **arguments)


def run(optimizer, model, steps):
    for step in steps:
        model.zero_grad()
        make_loss(step)(model).backward()
        optimizer.step()


def stepped(steps=3, **arguments):
    """torch's optimizer after some steps, and its model."""
    model = make_model()
    optimizer = theirs(model, **arguments)
    run(optimizer, model, range(steps))
    return optimizer, model


def assert_same_parameters(model, expected):
    for (name, parameter), other in zip(model.named_parameters(), expected.parameters()):
        assert torch.equal(parameter.detach(), other.detach()), name


def assert_same_state(state, expected):
    assert state.keys() == expected.keys()
    for number, entries in expected.items():
        assert state[number].keys() == entries.keys()
        for key, value in entries.items():
            found = state[number][key]
            assert type(found) is torch.Tensor
            assert (found.dtype, found.shape) == (value.dtype, value.shape)
            assert torch.equal(found, value), (number, key)


def digest(optimizer):
    return optimizer._session.store.digest()


def through_file(state_dict, path, **arguments):
    torch.save(state_dict, path)
    return torch.load(path, **arguments)


def pins(directory, expected=None):
    """How many pins are on disk below the daemon's directory; `expected` is waited for, since their
    links are removed behind the training."""
    deadline = time.monotonic() + 20
    while True:
        found = len(list(directory.glob("state/jobs/job/model/rank00000/pins/*")))
        if expected in (None, found) or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


# What state_dict() is.


def test_has_torchs_structure_and_values(daemon):
    pair = make_pair(daemon, lr=1e-2, weight_decay=0.1)
    for step in range(3):
        pair.step(make_loss(step))
    ours, theirs = pair.ours.state_dict(), pair.theirs.state_dict()
    assert ours.keys() == theirs.keys()
    assert ours["param_groups"] == theirs["param_groups"]
    assert_same_state(ours["state"], theirs["state"])


def test_groups_are_torchs_with_names_and_what_users_put_in_them(daemon):
    def groups(model):
        return [
            {"params": model[0].named_parameters("0"), "lr": 0.5, "note": "mine"},
            {"params": model[2].named_parameters("2"), "betas": (0.5, 0.9)},
        ]

    pair = make_pair(daemon, groups=groups, lr=1e-2)
    assert pair.ours.state_dict()["param_groups"] == pair.theirs.state_dict()["param_groups"]


def test_before_anything_happened_it_is_torchs_empty_one(daemon):
    model = make_model()
    optimizer = ours(daemon, model)
    expected = theirs(model).state_dict()
    assert optimizer.state_dict() == expected
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer._session.store is None


def test_parameters_without_steps_have_zeros_and_frozen_ones_nothing(daemon):
    model = make_model()
    model[0].weight.requires_grad_(False)
    optimizer = ours(daemon, model)
    model[2].bias.grad = torch.ones(13)
    optimizer.step()
    state = optimizer.state_dict()["state"]
    assert list(state) == [1, 2, 3, 4, 5]
    for number, entries in state.items():
        assert entries["step"] == (number == 3)
        assert (entries["exp_avg"] != 0).all() == (number == 3)


def test_a_mapped_state_dict_stays_what_it_is(daemon):
    """Files that are pinned are never written again, whatever steps follow, and after the end."""
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(3))
    state_dict = optimizer.state_dict()
    expected = copy.deepcopy(state_dict["state"])
    run(optimizer, model, range(3, 10))
    assert_same_state(state_dict["state"], expected)
    optimizer.close()
    assert_same_state(state_dict["state"], expected)


def test_writing_to_a_state_dict_changes_only_it(daemon):
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    before = digest(optimizer)
    expected = copy.deepcopy(optimizer.state_dict())["state"]
    for entries in optimizer.state_dict()["state"].values():
        entries["exp_avg"].fill_(7)
    assert digest(optimizer) == before
    assert_same_state(optimizer.state_dict()["state"], expected)


@pytest.mark.parametrize("bucket_elements", [4096, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_tensors_that_span_buckets_are_whole(daemon, bucket_elements, dtype):
    """Mapped, where buckets are of whole pages as those of the default size, and copied otherwise."""
    model = nn.ParameterDict(
        {"a": torch.ones(37), "b": torch.ones(5, 4001), "c": torch.ones(11)}
    )
    optimizer = ours(daemon, model, bucket_elements=bucket_elements, exp_avg_dtype=dtype)
    torch.manual_seed(0)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    expected = {
        number: {key: value.clone() for key, value in optimizer.state[parameter].items()}
        for number, parameter in enumerate(model.parameters())
    }
    state_dict = optimizer.state_dict()
    assert_same_state(state_dict["state"], expected)
    spanning = state_dict["state"][1]["exp_avg"]
    assert is_mapped(spanning) == (bucket_elements == 4096)
    spanning.fill_(3)
    assert_same_state(optimizer.state_dict()["state"], expected)
    assert (spanning == 3).all()


def is_mapped(tensor):
    """Its memory is that of a bucket's file."""
    for line in open("/proc/self/maps"):
        begin, end = (int(address, 16) for address in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return ".safetensors" in line
    raise AssertionError("its memory is nowhere")


def test_scalars_empty_and_strided_parameters(daemon):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.scalar = nn.Parameter(torch.tensor(2.0))
            self.empty = nn.Parameter(torch.zeros(0, 5))
            self.transposed = nn.Parameter(torch.randn(7, 5).t())

    def loss(model):
        return model.scalar**2 + model.empty.sum() + model.transposed.square().sum()

    pair = make_pair(daemon, model=Model(), lr=1e-2)
    for _ in range(3):
        pair.step(loss)
    expected = pair.theirs.state_dict()
    assert_same_state(pair.ours.state_dict()["state"], expected["state"])
    pair.ours.load_state_dict(copy.deepcopy(expected))
    pair.step(loss)
    pair.assert_equal()


def test_the_pin_ends_with_the_last_tensor(daemon, scratch):
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    state_dict = optimizer.state_dict()
    kept = state_dict["state"][0]["exp_avg"]
    assert pins(scratch) == 1
    del state_dict
    run(optimizer, model, range(2, 4))
    assert pins(scratch) == 1
    del kept
    assert pins(scratch, expected=0) == 0


def test_state_dicts_in_cycles_make_room_for_the_next(daemon):
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    gc.disable()
    try:
        for _ in range(10):
            state_dict = optimizer.state_dict()
            state_dict["itself"] = state_dict
    finally:
        gc.enable()


DROPPED_IN_A_CHILD = """
import os, pathlib, sys, time, types
sys.path[:0] = {path!r}
from test_state_dict import make_model, ours, pins, run
scratch = pathlib.Path({scratch!r})
daemon = types.SimpleNamespace(socket={socket!r})
model = make_model()
optimizer = ours(daemon, model)
run(optimizer, model, range(2))
state_dict = optimizer.state_dict()
child = os.fork()
if child == 0:
    del state_dict
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
time.sleep(0.2)
assert pins(scratch) == 1
del state_dict
assert pins(scratch, expected=0) == 0
run(optimizer, model, range(2, 3))
print(optimizer.sequence)
"""


def test_a_forked_child_releases_nothing(daemon, scratch):
    script = DROPPED_IN_A_CHILD.format(
        path=sys.path, socket=daemon.socket, scratch=str(scratch)
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.split() == ["3"], result.stderr


# To torch and back.


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    "kind, arguments",
    [
        ("AdamW", {}),
        ("AdamW", {"betas": (0.7, 0.99), "eps": 1e-5, "maximize": True}),
        ("Adam", {"lr": 3e-3}),
    ],
)
def test_a_run_may_change_between_torch_and_momentd(daemon, scratch, kind, arguments, mapped):
    undisturbed, expected = stepped(0, kind=kind, **arguments)
    run(undisturbed, expected, range(9))
    optimizer, model = stepped(3, kind=kind, **arguments)
    saved = through_file(optimizer.state_dict(), scratch / "first.pt", mmap=mapped)

    optimizer = ours(daemon, model, kind=kind)
    optimizer.load_state_dict(saved)
    run(optimizer, model, range(3, 6))
    saved = through_file(optimizer.state_dict(), scratch / "second.pt", mmap=mapped)
    optimizer.close()

    optimizer = theirs(model, kind=kind)
    optimizer.load_state_dict(saved)
    run(optimizer, model, range(6, 9))
    assert_same_parameters(model, expected)
    assert_same_state(optimizer.state_dict()["state"], undisturbed.state_dict()["state"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_run_of_16_bit_parameters_may_change_too(daemon, scratch, dtype):
    """Torch's side of it is a run on fp32 copies; the mains are those copies."""

    def step_both(optimizer, masters, model, steps):
        for step in steps:
            model.zero_grad()
            make_loss(step)(model).backward()
            for parameter, master in zip(model.parameters(), masters.parameters()):
                master.grad = parameter.grad.float()
            optimizer.step()
            with torch.no_grad():
                for parameter, master in zip(model.parameters(), masters.parameters()):
                    parameter.copy_(master)

    expected = make_model(dtype)
    expected_masters = copy.deepcopy(expected).float()
    step_both(theirs(expected_masters), expected_masters, expected, range(9))

    model = make_model(dtype)
    masters = copy.deepcopy(model).float()
    torchs = theirs(masters)
    step_both(torchs, masters, model, range(3))
    saved = torchs.state_dict()
    for number, master in enumerate(masters.parameters()):
        saved["state"][number]["main"] = master.detach()

    optimizer = ours(daemon, model)
    optimizer.load_state_dict(through_file(saved, scratch / "first.pt"))
    run(optimizer, model, range(3, 6))
    saved = through_file(optimizer.state_dict(), scratch / "second.pt")

    with torch.no_grad():
        for number, master in enumerate(masters.parameters()):
            master.copy_(saved["state"][number].pop("main"))
    torchs = theirs(masters)
    torchs.load_state_dict(saved)
    step_both(torchs, masters, model, range(6, 9))
    assert_same_parameters(masters, expected_masters)
    assert_same_parameters(model, expected)


@pytest.mark.parametrize("weights_first", [False, True])
def test_mains_are_right_whenever_the_weights_are_loaded(daemon, weights_first):
    model = make_model(torch.bfloat16)
    optimizer = ours(daemon, model)
    run(optimizer, model, range(4))
    weights, saved = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    run(optimizer, model, range(4, 8))

    again = make_model(torch.bfloat16, seed=5)
    resumed = ours(daemon, again, job="again")
    if weights_first:
        again.load_state_dict(weights)
    resumed.load_state_dict(saved)
    again.load_state_dict(weights)
    run(resumed, again, range(4, 8))
    assert_same_parameters(again, model)
    assert_same_state(resumed.state_dict()["state"], optimizer.state_dict()["state"])


def test_parameters_that_differ_from_a_loaded_main_win(daemon):
    model = make_model(torch.bfloat16)
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    saved = copy.deepcopy(optimizer.state_dict())
    other = make_model(torch.bfloat16, seed=5)
    before = copy.deepcopy(other)
    loaded = ours(daemon, other, job="other", lr=0.0, weight_decay=0.0)
    for group in saved["param_groups"]:
        group["lr"] = 0.0
    loaded.load_state_dict(saved)
    run(loaded, other, [2])
    assert_same_parameters(other, before)


def test_hyperparameters_of_the_file_win_and_act_at_once(daemon):
    torchs, model = stepped(58, lr=3e-3, betas=(0.6, 0.98), eps=1e-4, weight_decay=0.3)
    saved = copy.deepcopy(torchs.state_dict())
    twin = copy.deepcopy(model)
    optimizer = ours(daemon, twin, lr=9.0, betas=(0.1, 0.1), eps=1.0, weight_decay=9.0)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 3e-3
    assert optimizer.param_groups[0]["betas"] == (0.6, 0.98)
    assert all(optimizer.state[p]["step"] == 58 for p in twin.parameters())
    for step in range(58, 61):
        for one in (torchs, optimizer):
            one.param_groups[0]["lr"] *= 0.5
            one.param_groups[0]["weight_decay"] += 0.1
        run(torchs, model, [step])
        run(optimizer, twin, [step])
        assert_same_parameters(twin, model)


def test_the_implementation_stays_the_optimizers_own(daemon):
    torchs, model = stepped(2, foreach=True)
    saved = copy.deepcopy(torchs.state_dict())
    saved["param_groups"][0].update(fused=True, capturable=True)
    twin = copy.deepcopy(model)
    optimizer = ours(daemon, twin)
    optimizer.load_state_dict(saved)
    run(optimizer, twin, [2])
    run(torchs, model, [2])
    assert_same_parameters(twin, model)
    assert optimizer.param_groups[0]["fused"] is None


def test_files_of_old_torch_lack_what_was_not_there_yet(daemon):
    torchs, model = stepped(2)
    saved = copy.deepcopy(torchs.state_dict())
    for key in ("maximize", "foreach", "capturable", "differentiable", "fused"):
        del saved["param_groups"][0][key]
    del saved["param_groups"][0]["decoupled_weight_decay"]
    for entries in saved["state"].values():
        entries["step"] = int(entries["step"])
    twin = copy.deepcopy(model)
    optimizer = ours(daemon, twin)
    optimizer.load_state_dict(saved)
    run(optimizer, twin, [2])
    run(torchs, model, [2])
    assert_same_parameters(twin, model)


def test_adam_takes_the_kind_of_weight_decay_from_the_file(daemon):
    torchs, model = stepped(2)
    twin = copy.deepcopy(model)
    optimizer = ours(daemon, twin, kind="Adam")
    optimizer.load_state_dict(copy.deepcopy(torchs.state_dict()))
    run(optimizer, twin, [2])
    run(torchs, model, [2])
    assert_same_parameters(twin, model)


def test_parameters_that_the_file_has_no_state_of_start_at_zero(daemon):
    model = make_model()
    torchs = theirs(model)
    model[0].requires_grad_(False)
    run(torchs, model, range(2))
    model[0].requires_grad_(True)
    twin = copy.deepcopy(model)
    optimizer = ours(daemon, twin)
    run(optimizer, twin, range(3))
    twin.load_state_dict(model.state_dict())
    optimizer.load_state_dict(copy.deepcopy(torchs.state_dict()))
    for step in range(2, 5):
        run(optimizer, twin, [step])
        run(torchs, model, [step])
        assert_same_parameters(twin, model)


@pytest.mark.parametrize("opened", [False, True])
def test_state_of_frozen_parameters_waits_for_them(daemon, opened):
    torchs, model = stepped(3)
    saved = copy.deepcopy(torchs.state_dict())
    twin = copy.deepcopy(model)
    twin[0].requires_grad_(False)
    model[0].requires_grad_(False)
    optimizer = ours(daemon, twin)
    if opened:
        optimizer.open()
    optimizer.load_state_dict(saved)
    for step in range(3, 9):
        if step == 6:
            twin[0].requires_grad_(True)
            model[0].requires_grad_(True)
        run(optimizer, twin, [step])
        run(torchs, model, [step])
        assert_same_parameters(twin, model)


def test_an_empty_state_starts_everything_over(daemon):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(3):
        pair.step(make_loss(step))
    empty = {**pair.theirs.state_dict(), "state": {}}
    pair.ours.load_state_dict(empty)
    pair.theirs.load_state_dict(copy.deepcopy(empty))
    for step in range(3, 6):
        pair.step(make_loss(step))
        pair.assert_equal()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_moments_of_other_types_are_converted(daemon, dtype):
    torchs, model = stepped(2)
    saved = copy.deepcopy(torchs.state_dict())
    for entries in saved["state"].values():
        for key in ("exp_avg", "exp_avg_sq"):
            entries[key] = entries[key].to(dtype)
    twin = copy.deepcopy(model)
    optimizer = ours(daemon, twin)
    optimizer.load_state_dict(saved)
    torchs.load_state_dict(saved)
    run(optimizer, twin, [2])
    run(torchs, model, [2])
    assert_same_parameters(twin, model)


def test_moments_with_strides_are_loaded_by_element(daemon):
    torchs, model = stepped(2)
    saved = copy.deepcopy(torchs.state_dict())
    for entries in saved["state"].values():
        for key in ("exp_avg", "exp_avg_sq"):
            wide = torch.zeros(*entries[key].shape, 2)
            wide[..., 0] = entries[key]
            entries[key] = wide[..., 0]
    optimizer = ours(daemon, copy.deepcopy(model))
    optimizer.load_state_dict(saved)
    assert_same_state(optimizer.state_dict()["state"], torchs.state_dict()["state"])


def test_narrow_moments_are_given_and_taken_as_they_are(daemon):
    model = make_model()
    types = {"exp_avg_dtype": torch.float16, "exp_avg_sq_dtype": torch.bfloat16}
    optimizer = ours(daemon, model, **types)
    run(optimizer, model, range(3))
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["state"][0]["exp_avg"].dtype == torch.float16
    assert saved["state"][0]["exp_avg_sq"].dtype == torch.bfloat16
    before = digest(optimizer)
    optimizer.load_state_dict(saved)
    assert digest(optimizer) == before


# Own state dicts.


def test_an_untouched_own_state_dict_is_no_news(daemon, monkeypatch):
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    monkeypatch.setattr(momentd.Store, "write", lambda *_, **__: pytest.fail("nothing changed"))
    state_dict = optimizer.state_dict()
    rebuilt = {
        "state": {n: dict(entries) for n, entries in state_dict["state"].items()},
        "param_groups": copy.deepcopy(state_dict["param_groups"]),
    }
    rebuilt["param_groups"][0]["lr"] = 0.25
    optimizer.load_state_dict(rebuilt)
    assert optimizer.param_groups[0]["lr"] == 0.25


def change_value(state_dict):
    state_dict["state"][2]["exp_avg"].mul_(2)


def change_place(state_dict):
    state = state_dict["state"]
    state[3]["exp_avg"], state[5]["exp_avg"] = state[5]["exp_avg"], state[3]["exp_avg"]


def change_absence(state_dict):
    del state_dict["state"][3]


@pytest.mark.parametrize("change", [change_value, change_place, change_absence])
def test_an_own_state_dict_that_was_changed_is_loaded(daemon, change):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(3):
        pair.step(make_loss(step))
    for optimizer in (pair.ours, pair.theirs):
        state_dict = optimizer.state_dict()
        change(state_dict)
        optimizer.load_state_dict(state_dict)
    for step in range(3, 6):
        pair.step(make_loss(step))
        pair.assert_equal()


def test_an_own_state_dict_of_an_earlier_step_is_loaded(daemon):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(2):
        pair.step(make_loss(step))
    ours, theirs = pair.ours.state_dict(), copy.deepcopy(pair.theirs.state_dict())
    for step in range(2, 5):
        pair.step(make_loss(step))
    pair.ours.load_state_dict(ours)
    pair.theirs.load_state_dict(theirs)
    for step in range(5, 8):
        pair.step(make_loss(step))
        pair.assert_equal()


# References.


def refer(optimizer):
    return copy.deepcopy(optimizer.state_dict(reference=True))


def test_a_reference_has_no_tensors_and_names_the_state(daemon):
    model = make_model()
    optimizer = ours(daemon, model, role="actor", rank=3)
    run(optimizer, model, range(2))
    reference = refer(optimizer)
    assert reference["state"] == {}
    assert reference["param_groups"] == optimizer.state_dict()["param_groups"]
    named = reference["momentd"]
    assert (named["job"], named["role"], named["rank"], named["sequence"]) == ("job", "actor", 3, 2)
    assert named["store"] == optimizer.info().store_uuid


def test_a_reference_to_where_the_store_stands_changes_nothing(daemon, monkeypatch):
    pair = make_pair(daemon, lr=1e-2)
    pair.step(make_loss(0))
    monkeypatch.setattr(momentd.Store, "rollback", lambda *_: pytest.fail("nothing to go back to"))
    reference = refer(pair.ours)
    reference["param_groups"][0]["lr"] = pair.theirs.param_groups[0]["lr"] = 0.25
    pair.ours.load_state_dict(reference)
    pair.step(make_loss(1))
    pair.assert_equal()


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("resume", [None, "auto"])
def test_a_reference_to_an_earlier_commit_goes_back_to_it(daemon, reopened, resume):
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    reference = refer(optimizer)
    weights = copy.deepcopy(model.state_dict())
    run(optimizer, model, range(2, 3))
    expected = copy.deepcopy(model)
    if reopened:
        optimizer.close()
        model = make_model(seed=8)
        optimizer = ours(daemon, model, resume=resume)
    optimizer.load_state_dict(reference)
    assert optimizer.sequence == 2
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[name])
    run(optimizer, model, range(2, 3))
    assert_same_parameters(model, expected)


def test_a_reference_to_another_store_or_a_lost_state_is_refused(daemon):
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    reference = refer(optimizer)
    other = ours(daemon, make_model(), job="other")
    other.open()
    with pytest.raises(ValueError, match="refers to the store .*job 'job'"):
        other.load_state_dict(reference)
    run(optimizer, model, range(2, 8))
    before = digest(optimizer)
    with pytest.raises(ValueError, match="sequence 2 .*gone"):
        optimizer.load_state_dict(reference)
    assert digest(optimizer) == before
    run(optimizer, model, range(8, 9))
    optimizer.close()
    over = ours(daemon, make_model(), resume="never")
    with pytest.raises(ValueError, match="never"):
        over.load_state_dict(reference)


def test_a_reference_to_a_sequence_that_was_trained_anew_is_refused(daemon):
    model = make_model()
    optimizer = ours(daemon, model)
    run(optimizer, model, range(3))
    reference = refer(optimizer)
    optimizer.resume(sequence=2)
    run(optimizer, model, range(7, 8))
    assert optimizer.sequence == reference["momentd"]["sequence"]
    optimizer.close()
    again = ours(daemon, make_model(), resume="must")
    with pytest.raises(ValueError, match="gone"):
        again.load_state_dict(reference)


# What an unopened optimizer makes of a load, by what is there and by `resume`.


def leave_state(daemon):
    """A store of job "job", two steps old."""
    model = make_model(seed=3)
    optimizer = ours(daemon, model)
    run(optimizer, model, range(2))
    optimizer.close()


@pytest.mark.parametrize(
    "existing, resume, sequence",
    [
        (False, None, 0),
        (False, "never", 0),
        (False, "auto", 0),
        (True, "never", 0),
        (True, "auto", 2),
        (True, "must", 2),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_load_replaces_what_is_there(daemon, existing, resume, sequence, dtype):
    if existing:
        model = make_model(dtype, seed=3)
        optimizer = ours(daemon, model)
        run(optimizer, model, range(2))
        optimizer.close()
    source_model = make_model(dtype)
    source = ours(daemon, source_model, job="source")
    run(source, source_model, range(3))
    model = copy.deepcopy(source_model)
    optimizer = ours(daemon, model, resume=resume)
    optimizer.load_state_dict(copy.deepcopy(source.state_dict()))
    assert optimizer.sequence == sequence
    run(source, source_model, range(3, 6))
    run(optimizer, model, range(3, 6))
    assert_same_parameters(model, source_model)
    assert optimizer.sequence == sequence + 3
    assert_same_state(optimizer.state_dict()["state"], source.state_dict()["state"])


@pytest.mark.parametrize(
    "existing, resume, code", [(True, None, "ALREADY_EXISTS"), (False, "must", "NOT_FOUND")]
)
def test_a_load_obeys_the_choice_of_resume(daemon, existing, resume, code):
    if existing:
        leave_state(daemon)
    torchs, model = stepped(2)
    optimizer = ours(daemon, model, resume=resume)
    with pytest.raises(momentd.Error, match=code):
        optimizer.load_state_dict(torchs.state_dict())


def test_a_load_without_content_leaves_an_earlier_run_alone(daemon):
    leave_state(daemon)
    model = make_model()
    optimizer = ours(daemon, model, resume="must")
    optimizer.load_state_dict(theirs(model, lr=0.5).state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.5
    optimizer.resume()
    assert optimizer.sequence == 2
    assert optimizer.state[model[0].weight]["step"] == 2


def test_a_loaded_state_is_resumed_from(daemon):
    torchs, model = stepped(4)
    twin = copy.deepcopy(model)
    optimizer = ours(daemon, twin)
    optimizer.load_state_dict(copy.deepcopy(torchs.state_dict()))
    optimizer.close()
    resumed_model = make_model(seed=9)
    resumed = ours(daemon, resumed_model, resume="must")
    resumed.resume()
    run(resumed, resumed_model, range(4, 7))
    run(torchs, model, range(4, 7))
    assert_same_parameters(resumed_model, model)


# What is refused changes nothing.


def other_group_count(saved):
    saved["param_groups"] = saved["param_groups"] * 2


def other_parameter_count(saved):
    saved["param_groups"][0]["params"].pop()


def other_shape(saved):
    saved["state"][0]["exp_avg"] = torch.zeros(31, 67)


def no_moment(saved):
    del saved["state"][0]["exp_avg_sq"]


def no_step(saved):
    del saved["state"][0]["step"]


def half_a_step(saved):
    saved["state"][0]["step"] = torch.tensor(1.5)


def third_moment(saved):
    saved["state"][0]["max_exp_avg_sq"] = torch.zeros(67, 31)


def amsgrad_group(saved):
    saved["param_groups"][0]["amsgrad"] = True


def unknown_entry(saved):
    saved["state"][0]["momentum_buffer"] = torch.zeros(67, 31)


def main_of_fp32(saved):
    saved["state"][0]["main"] = torch.zeros(67, 31)


def integers(saved):
    saved["state"][0]["exp_avg"] = torch.zeros(67, 31, dtype=torch.int32)


def unknown_parameter(saved):
    saved["state"][17] = saved["state"].pop(0)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (other_group_count, "different number of parameter groups"),
        (other_parameter_count, "doesn't match the size of optimizer's group"),
        (other_shape, r"exp_avg of 0\.weight has shape \(31, 67\)"),
        (no_moment, r"no exp_avg_sq of 0\.weight"),
        (no_step, r"no step of 0\.weight"),
        (half_a_step, r"step of 0\.weight is 1\.5"),
        (third_moment, "amsgrad"),
        (amsgrad_group, "amsgrad"),
        (unknown_entry, "momentum_buffer"),
        (main_of_fp32, "its own main"),
        (integers, "int32"),
        (unknown_parameter, "17"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(daemon, spoil, words):
    torchs, model = stepped(3)
    saved = copy.deepcopy(torchs.state_dict())
    saved["param_groups"][0]["lr"] = 0.5
    spoil(saved)
    pair = make_pair(daemon, lr=1e-2)
    pair.step(make_loss(0))
    before = digest(pair.ours)
    with pytest.raises(ValueError, match=words):
        pair.ours.load_state_dict(saved)
    assert digest(pair.ours) == before
    assert pair.ours.param_groups[0]["lr"] == 1e-2
    pair.step(make_loss(1))
    pair.assert_equal()


# Hooks.


def test_hooks_run_as_in_torch(daemon):
    def watch(optimizer):
        calls = []
        optimizer.register_state_dict_pre_hook(lambda *a: calls.append(("pre", len(a))))
        optimizer.register_state_dict_post_hook(
            lambda _, state_dict: calls.append(("post", sorted(state_dict)))
        )
        optimizer.register_state_dict_post_hook(lambda _, state_dict: {**state_dict, "extra": 1})
        optimizer.register_load_state_dict_pre_hook(
            lambda _, state_dict: calls.append(("load pre", sorted(state_dict)))
        )

        def halve(_, state_dict):
            groups = copy.deepcopy(state_dict["param_groups"])
            groups[0]["lr"] *= 0.5
            return {**state_dict, "param_groups": groups}

        optimizer.register_load_state_dict_pre_hook(halve)
        optimizer.register_load_state_dict_post_hook(
            lambda optimizer: calls.append(("load post", optimizer.param_groups[0]["lr"]))
        )
        state_dict = optimizer.state_dict()
        assert state_dict["extra"] == 1
        optimizer.load_state_dict(state_dict)
        return calls

    pair = make_pair(daemon, lr=1e-2)
    pair.step(make_loss(0))
    assert watch(pair.ours) == watch(pair.theirs)
    pair.step(make_loss(1))
    pair.assert_equal()
