"""Names, sizes and numbers of tensors that layouts meet, through the client: they step, and a reopened
store has the same bits."""

import numpy as np
import pytest

import momentd
from momentd import _library as c
from bare_trainer import BareTrainer, undisturbed

WEIRD = ["a/b", "a b", "../../etc/passwd", ".", "größe-模型", "tab\tand\nline", "n" * 1000, '"\\%s']


def step_and_reopen(daemon, shapes, steps=3, **options):
    trainer = BareTrainer(daemon, shapes, **options).steps(steps)
    trainer.close()
    again = BareTrainer(daemon, shapes, **{**options, "resume": "must"})
    assert again.sequence == steps
    assert again.bits() == trainer.bits()
    again.step()
    again.close()
    return again.bits()


def test_names_of_tensors_members_roles_and_jobs(daemon):
    shapes = {name: (33,) for name in WEIRD}
    plain = {f"plain{index}": (33,) for index in range(len(WEIRD))}
    for name in WEIRD:
        step_and_reopen(daemon, shapes, job=name, role=name, steps=1)
    step_and_reopen(daemon, plain, job="plain", steps=1)


def test_names_that_are_one_after_escaping_are_two_stores(daemon):
    for job in ("a/b", "a_b", "a b"):
        trainer = BareTrainer(daemon, {"w": (3,)}, job=job)
        trainer.steps(len(job.encode()) + ord(job[1]) % 3)
        trainer.close()
    for job in ("a/b", "a_b", "a b"):
        again = BareTrainer(daemon, {"w": (3,)}, job=job, resume="must")
        assert again.sequence == len(job.encode()) + ord(job[1]) % 3
        again.close()


@pytest.mark.parametrize(
    "sizes",
    [[0, 5, 7], [5, 0, 7], [5, 7, 0], [0, 0, 0], [], [0], [4096, 0, 0, 4096], [1, 0, 1]],
    ids=str,
)
def test_tensors_without_elements_anywhere_and_ranks_with_none(daemon, sizes):
    shapes = {f"tensor{index}": (size, 3) for index, size in enumerate(sizes)}
    step_and_reopen(daemon, shapes, bucket_elements=10)


def test_ranks_of_one_and_of_many_tensors_beside_each_other(daemon):
    few, many = {"only": (9,)}, {f"w{index}": (9,) for index in range(40)}
    step_and_reopen(daemon, few, job="uneven", rank=0)
    step_and_reopen(daemon, many, job="uneven", rank=1)
    step_and_reopen(daemon, {}, job="uneven", rank=2)


def test_five_thousand_tensors_in_one_member(daemon):
    """Two buckets, since one closes at 4,096; their names together are longer than any path."""
    shapes = {f"model.layers.{index}.{'x' * 40}": (7,) for index in range(5000)}
    bits = step_and_reopen(daemon, shapes, steps=2)
    assert bits == undisturbed(daemon, shapes, 3, bucket_elements=1000)


@pytest.mark.parametrize("elements", [1, 1023, 1024, 1025, 262_143, 262_145, 774_528])
def test_odd_lengths_have_the_same_bits_in_any_bucket(daemon, elements):
    shapes = {"odd": (elements,), "last": (3,)}
    bits = step_and_reopen(daemon, shapes)
    assert bits == undisturbed(daemon, shapes, 4, bucket_elements=max(elements // 3, 1))


def test_a_hundred_thousand_tensors_step(daemon):
    shapes = {f"model.layers.{index}.{'w' * 60}": (1,) for index in range(100_000)}
    trainer = BareTrainer(daemon, shapes, job="many")
    assert trainer.step().sequence == 1
    trainer.close()
    again = BareTrainer(daemon, shapes, job="many", resume="must")
    assert again.bits() == trainer.bits()
    again.close()


def test_names_beyond_the_limit_are_refused_and_the_daemon_goes_on(daemon):
    for options in ({"job": "j" * 1025}, {"job": "ok", "role": "r" * 1025}):
        with pytest.raises(momentd.Error, match="INVALID_ARGUMENT"):
            BareTrainer(daemon, {"w": (3,)}, **options)
    with pytest.raises(momentd.Error, match="INVALID_ARGUMENT.*twice|INVALID_ARGUMENT.*same"):
        momentd.Store(
            momentd.store.Options(
                job="job",
                socket=daemon.socket,
                tensors=[momentd.store.Tensor("w", (3,)), momentd.store.Tensor("w", (4,))],
            )
        )
    BareTrainer(daemon, {"w": (3,)}).steps(1).close()


def test_buffers_of_another_type_or_number_are_refused_and_the_store_goes_on(daemon):
    trainer = BareTrainer(daemon, {"a": (8,), "b": (8,)})
    gradient = np.ones(8, np.float32)
    group = momentd.store.Group(tensors=[0, 1], lr=0.1)
    for types in ([c.FLOAT8_E4M3] * 2, [17, 0]):
        with pytest.raises(momentd.Error, match="INVALID_ARGUMENT"):
            trainer.store.step([group], [gradient.ctypes.data] * 2, types, [0, 1])
    with pytest.raises(momentd.Error, match="INVALID_ARGUMENT"):
        trainer.store.step([group], [gradient.ctypes.data, None], [c.FLOAT32] * 2, [0, 1])
    with pytest.raises(momentd.Error, match="INVALID_ARGUMENT"):
        trainer.store.attach([gradient.ctypes.data])
    assert trainer.sequence == 0
    trainer.steps(1).close()
