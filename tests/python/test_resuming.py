"""momentd.resume() in one process."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import momentd  # noqa: E402
import momentd.torch  # noqa: E402
from momentd.torch import TrainerState  # noqa: E402


class Run:
    """A small training run with a scheduler, a scaler, dropout and batch norm."""

    def __init__(self, daemon, job="job", model=None, **arguments):
        torch.manual_seed(1)
        self.model = model or torch.nn.Sequential(
            torch.nn.Linear(6, 24), torch.nn.BatchNorm1d(24), torch.nn.Dropout(0.4),
            torch.nn.Linear(24, 1),
        )
        self.optimizer = momentd.torch.AdamW(
            self.model.parameters(), lr=1e-2, job=job, socket=daemon.socket, module=self.model,
            resume="auto", **arguments,
        )
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
        self.data = torch.Generator().manual_seed(3)

    def resume(self, **arguments):
        return momentd.resume(
            self.model, self.optimizer,
            **{"scheduler": self.scheduler, "scaler": self.scaler, "data": self.data, "keep": "1.*",
               **arguments},
        )

    def backward(self):
        inputs = torch.randn(5, 6, generator=self.data)
        self.optimizer.zero_grad()
        loss = self.model(inputs).square().mean()
        self.scaler.scale(loss).backward()
        return loss.item()

    def finish(self):
        self.scaler.update()
        self.scheduler.step()

    def iterate(self):
        loss = self.backward()
        self.scaler.step(self.optimizer)
        self.finish()
        return loss, self.optimizer.param_groups[0]["lr"], self.scaler.get_scale()

    def end(self):
        self.optimizer.close()
        return {name: value.clone() for name, value in self.model.state_dict().items()}


def undisturbed(daemon, count):
    run = Run(daemon, "undisturbed")
    assert run.resume() is None
    return [run.iterate() for _ in range(count)], run.end()


def assert_same(ours, expected):
    assert ours.keys() == expected.keys()
    for name in ours:
        assert torch.equal(ours[name], expected[name]), name


@pytest.mark.parametrize("finish", [False, True], ids=["registered", "callback"])
@pytest.mark.parametrize("stop", [0, 1, 2, 5])
def test_a_run_goes_on_after_the_interrupted_iteration(daemon, stop, finish):
    expected, parameters = undisturbed(daemon, 8)
    run = Run(daemon)
    assert run.resume() is None
    done = [run.iterate() for _ in range(stop)]
    run.backward()
    run.scaler.step(run.optimizer)  # and no more of this iteration
    run.optimizer.close()
    run = Run(daemon)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.resume(finish=run.finish if finish else None) == stop + 1
    done.append((expected[stop][0], run.optimizer.param_groups[0]["lr"], run.scaler.get_scale()))
    done += [run.iterate() for _ in range(stop + 1, 8)]
    assert done == expected
    assert_same(run.end(), parameters)


def test_a_run_that_was_killed_before_its_first_step_starts(daemon):
    expected, parameters = undisturbed(daemon, 3)
    run = Run(daemon)
    run.resume()
    run.optimizer.refresh()  # the store is filled, and no step was made
    run.optimizer.close()
    run = Run(daemon)
    assert run.resume() is None
    assert [run.iterate() for _ in range(3)] == expected
    assert_same(run.end(), parameters)


def test_a_skipped_step_is_finished_as_one_that_overflowed(daemon):
    run = Run(daemon)
    run.resume()
    run.iterate()
    run.backward()
    run.optimizer.skip()
    run.optimizer.close()
    run = Run(daemon)
    assert run.resume() == 2
    assert run.scaler.get_scale() == 8.0


def test_a_rewound_store_is_resumed_in_the_process(other_daemon, scratch, daemon):
    expected, parameters = undisturbed(daemon, 7)
    sockets = scratch / "sockets"
    sockets.mkdir()
    first = other_daemon(socket_dir=str(sockets))
    run = Run(first)
    run.resume()
    done = [run.iterate() for _ in range(4)]
    first.process.kill()
    first.process.wait()
    with other_daemon(socket_dir=str(sockets)):
        try:
            done.append(run.iterate())
        except momentd.Rewound as rewound:
            assert run.resume() == rewound.sequence == 3
            assert all(parameter.grad is None for parameter in run.model.parameters())
            done = done[:3]
        done += [run.iterate() for _ in range(len(done), 7)]
        assert done == expected
        assert_same(run.end(), parameters)


def test_the_state_may_be_the_optimizers_blob(daemon):
    expected, parameters = undisturbed(daemon, 4)
    for count in (2, 2):
        state = TrainerState()
        run = Run(daemon, blob=state)
        run.resume()
        assert run.optimizer.blob is state
        done = [run.iterate() for _ in range(count)]
        left = run.end()
    assert done == expected[2:]
    assert_same(left, parameters)


def test_another_blob_than_a_state_is_refused(daemon):
    run = Run(daemon, blob=lambda: b"mine")
    with pytest.raises(TypeError, match="not a TrainerState"):
        run.resume()
    run = Run(daemon, job="other", blob=TrainerState())
    with pytest.raises(ValueError, match="another blob="):
        run.resume(state=TrainerState())


def test_a_step_without_a_state_is_said_so(daemon):
    run = Run(daemon)
    run.iterate()
    run.optimizer.close()
    with pytest.raises(RuntimeError, match="step 1 of the store was made without a TrainerState"):
        Run(daemon).resume()


def test_unnamed_buffers_are_refused_in_a_new_run_too(daemon):
    with pytest.raises(ValueError, match="1.running_mean"):
        Run(daemon).resume(keep=())


def test_buffers_beyond_the_limit_of_a_blob_are_refused(daemon):
    with pytest.raises(ValueError, match=r"1.running_mean \(96\).*at most 100: raise blob_limit"):
        Run(daemon, blob_limit_bytes=100).resume()


def test_what_is_no_optimizer_of_ours_is_refused():
    model = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match="SGD is no optimizer of momentd"):
        momentd.resume(model, torch.optim.SGD(model.parameters(), lr=1.0))


def test_the_optimizer_may_be_wrapped(daemon):
    class Wrapper:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.param_groups = optimizer.param_groups

    run = Run(daemon)
    run.resume()
    run.iterate()
    run.optimizer.close()
    run = Run(daemon)
    assert momentd.resume(run.model, Wrapper(run.optimizer), scheduler=run.scheduler,
                          scaler=run.scaler, data=run.data, keep="1.*") == 1


def test_going_back_to_an_earlier_step(daemon):
    expected, parameters = undisturbed(daemon, 5)
    run = Run(daemon)
    run.resume()
    for _ in range(4):
        run.iterate()
    run.optimizer.close()
    run = Run(daemon)
    assert run.resume(sequence=3) == 3
    assert [run.iterate() for _ in range(2)] == expected[3:]
    assert_same(run.end(), parameters)


def test_the_package_offers_resume_without_importing_torch():
    import subprocess
    import sys

    script = (
        "import sys; import momentd; assert 'torch' not in sys.modules; "
        "assert momentd.resume.__module__ == 'momentd.torch.resuming'"
    )
    subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": ":".join(sys.path)},
                   check=True)
    with pytest.raises(AttributeError, match="nothing"):
        momentd.nothing


class Pair:
    """Two optimizers that step in turn, as those of an actor and a critic."""

    def __init__(self, daemon, job="pair"):
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.4),
                                         torch.nn.Linear(8, 1))
        self.optimizers = [
            momentd.torch.AdamW(
                self.model[index].parameters(), lr=1e-2, job=job, role=f"part{index}",
                socket=daemon.socket, module=self.model, resume="auto",
            )
            for index in (0, 2)
        ]
        self.schedulers = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
                           for optimizer in self.optimizers]

    def resume(self):
        return momentd.resume(self.model, self.optimizers, scheduler=self.schedulers)

    def iterate(self, only=2):
        loss = self.model(torch.randn(5, 6)).square().mean()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers[:only]:
            optimizer.step()
        if only == 2:
            self.finish()
        return loss.item(), [scheduler.get_last_lr() for scheduler in self.schedulers]

    def finish(self):
        for scheduler in self.schedulers:
            scheduler.step()

    def close(self):
        for optimizer in self.optimizers:
            optimizer.close()


@pytest.mark.parametrize("only", [0, 1, 2], ids=["neither", "the first", "both"])
def test_optimizers_that_step_in_turn_go_back_together(daemon, only):
    """The process ends in step 4, when so many of the optimizers have stepped."""
    whole = Pair(daemon, "whole")
    assert whole.resume() is None
    expected = [whole.iterate() for _ in range(6)]
    whole.close()
    pair = Pair(daemon)
    pair.resume()
    done = [pair.iterate() for _ in range(3)]
    pair.iterate(only)
    pair.close()
    pair = Pair(daemon)
    stood = 4 if only == 2 else 3
    assert pair.resume() == stood
    assert [optimizer.sequence for optimizer in pair.optimizers] == [stood, stood]
    done = expected[:stood] + [pair.iterate() for _ in range(stood, 6)]
    assert done == expected
    for ours, theirs in zip(pair.model.parameters(), whole.model.parameters()):
        assert torch.equal(ours, theirs)


def test_stores_without_a_common_step_are_told_apart(daemon):
    pair = Pair(daemon)
    pair.resume()
    pair.iterate()
    for _ in range(3):
        pair.iterate(only=1)
    pair.close()
    with pytest.raises(RuntimeError, match=r"store 0: \[2, 3, 4\]; rank 0, store 1: \[0, 1\]"):
        Pair(daemon).resume()
