"""A disk that fails once, and a daemon that dies at every point of a commit: the store is at a whole
step when it is opened again, at most one answered step behind, and the finished run has the bits of an
undisturbed one."""

import pytest

import momentd
from bare_trainer import SMALLEST_POOL, STREAMED, STREAMED_OPTIONS, BareTrainer, undisturbed

STEPS = 8
SHAPES = {"weight": (300, 100), "bias": (7,)}
COMMIT_POINTS = [
    "store.before_erase",
    "store.before_data_sync",
    "store.before_record",
    "store.after_record",
    "io.sync",
]


def run_until_it_fails(daemon, shapes, **options):
    """The sequence of the last answered step and the error, None if there was none."""
    trainer, answered = None, -1
    try:
        trainer = BareTrainer(daemon, shapes, retry_for_seconds=0.2, **options)
        answered = trainer.sequence
        while answered < STEPS:
            trainer.step()
            answered = trainer.sequence
        trainer.close()
        return answered, None
    except momentd.Error as error:
        if trainer is not None:
            try:
                trainer.close()
            except momentd.Error:
                pass  # the same disk, or the daemon that is gone
        return answered, error


def finish(daemon, shapes, answered, **options):
    trainer = BareTrainer(daemon, shapes, **options)
    assert trainer.sequence >= answered - 1
    trainer.steps(STEPS - trainer.sequence).close()
    return trainer.bits()


# The first of each in Open; the others in steps: of eight buckets in pieces of 2 MiB, 24 files.
@pytest.mark.parametrize(
    "operation, at",
    [("read", at) for at in (25, 60, 100)]
    + [("write", at) for at in (1, 60, 100, 130)]
    + [("sync", at) for at in (1, 40, 48, 52, 60)],
)
def test_one_error_of_the_disk_ends_a_call_and_costs_no_commit(
    other_daemon, monkeypatch, daemon, operation, at
):
    monkeypatch.setenv("MOMENTD_FAILPOINTS", f"io.{operation}=error@{at}")
    with other_daemon(arguments=SMALLEST_POOL) as failing:
        answered, error = run_until_it_fails(failing, STREAMED, **STREAMED_OPTIONS)
        # A read ahead that fails is tried again by the step that needs it.
        assert error is not None or operation == "read"
        if error is not None:
            assert error.code in ("INTERNAL", "FAILED_PRECONDITION")
            assert f"failpoint io.{operation}" in str(error)
            assert "/other-state/" in str(error)
        # The same daemon goes on: a new Open reads what is on the disk.
        bits = finish(failing, STREAMED, answered, **STREAMED_OPTIONS)
    assert bits == undisturbed(daemon, STREAMED, STEPS, **STREAMED_OPTIONS)


@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_daemon_killed_within_a_commit_leaves_a_whole_one(
    other_daemon, monkeypatch, daemon, point, at
):
    monkeypatch.setenv("MOMENTD_FAILPOINTS", f"{point}=kill@{at}")
    dying = other_daemon()
    answered, error = run_until_it_fails(dying, SHAPES)
    assert error is not None and error.code in ("UNAVAILABLE", "REWOUND")
    assert dying.process.wait(60) == -9
    dying.close()
    monkeypatch.delenv("MOMENTD_FAILPOINTS")
    with other_daemon() as running:
        bits = finish(running, SHAPES, answered)
    assert bits == undisturbed(daemon, SHAPES, STEPS)
