"""torch.distributed.checkpoint over momentd.torch, in one process."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

import momentd.torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402
from torch.distributed.checkpoint.state_dict import (  # noqa: E402
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful  # noqa: E402

warnings.filterwarnings("ignore", module="torch.distributed")


class Trainer(Stateful):
    """As torch's tutorial has it."""

    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
        )


def run(trainer, steps):
    for step in steps:
        trainer.model.zero_grad()
        make_loss(step)(trainer.model).backward()
        trainer.optimizer.step()


def ours(daemon, job, seed=0, dtype=torch.float32, **arguments):
    model = make_model(dtype, seed=seed)
    optimizer = momentd.torch.AdamW(
        model.parameters(), lr=1e-2, job=job, socket=daemon.socket, module=model, **arguments
    )
    return Trainer(model, optimizer)


def theirs(seed=0):
    model = make_model(seed=seed)
    return Trainer(model, torch.optim.AdamW(model.parameters(), lr=1e-2))


def save(trainer, path):
    dcp.save({"trainer": trainer}, checkpoint_id=path, no_dist=True)


def load(trainer, path):
    dcp.load({"trainer": trainer}, checkpoint_id=path, no_dist=True)


def assert_same(trainer, other):
    for parameter, expected in zip(trainer.model.parameters(), other.model.parameters()):
        assert torch.equal(parameter.detach(), expected.detach())


def test_ten_saves_in_a_row_change_nothing(daemon, scratch):
    trainer = ours(daemon, "job")
    run(trainer, range(3))
    store = trainer.optimizer._session.store
    before, sequence = store.digest(), trainer.optimizer.sequence
    for number in range(10):
        trainer.model.zero_grad()
        save(trainer, scratch / f"save{number}")
        assert store.digest() == before
    assert trainer.optimizer.sequence == sequence


def test_a_save_before_the_first_step_steps_nothing(daemon, scratch):
    trainer = ours(daemon, "job")
    save(trainer, scratch / "save")
    assert trainer.optimizer._session.store is None
    expected = theirs()
    run(trainer, range(3))
    run(expected, range(3))
    assert_same(trainer, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("opened", [False, True])
def test_a_checkpoint_is_loaded_in_place(daemon, scratch, dtype, opened):
    trainer = ours(daemon, "job", dtype=dtype)
    run(trainer, range(3))
    save(trainer, scratch / "save")
    run(trainer, range(3, 6))
    resumed = ours(daemon, "resumed", seed=4, dtype=dtype)
    if opened:
        run(resumed, range(2))
    load(resumed, scratch / "save")
    run(resumed, range(3, 6))
    assert_same(resumed, trainer)


def test_checkpoints_pass_between_torch_and_momentd(daemon, scratch):
    undisturbed = theirs()
    run(undisturbed, range(9))
    first = theirs()
    run(first, range(3))
    save(first, scratch / "first")
    second = ours(daemon, "second", seed=4)
    load(second, scratch / "first")
    run(second, range(3, 6))
    save(second, scratch / "second")
    third = theirs(seed=5)
    load(third, scratch / "second")
    run(third, range(6, 9))
    assert_same(third, undisturbed)


@pytest.mark.parametrize(
    "options",
    [
        StateDictOptions(full_state_dict=True),
        StateDictOptions(full_state_dict=True, cpu_offload=True),
        StateDictOptions(flatten_optimizer_state_dict=True),
    ],
)
def test_options_of_torch(daemon, options):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(3):
        pair.step(make_loss(step))
    ours = get_optimizer_state_dict(pair.model, pair.ours, options=options)
    theirs = get_optimizer_state_dict(pair.masters, pair.theirs, options=options)
    assert ours.keys() == theirs.keys()
    ours, theirs = copy.deepcopy(ours), copy.deepcopy(theirs)
    for step in range(3, 5):
        pair.step(make_loss(step))
    set_optimizer_state_dict(pair.model, pair.ours, ours, options=options)
    set_optimizer_state_dict(pair.masters, pair.theirs, theirs, options=options)
    for step in range(5, 8):
        pair.step(make_loss(step))
        pair.assert_equal()
