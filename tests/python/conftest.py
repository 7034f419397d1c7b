"""Shared by the tests of the Python client: a private daemon, and torch beside momentd."""

import copy
import os
import pathlib
import sys
import tempfile

import pytest
from needs import ToldToCtest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "client" / "python"))


def pytest_configure(config):
    config.pluginmanager.register(ToldToCtest())


@pytest.fixture
def scratch():
    """A short path, since a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mmt") as directory:
        yield pathlib.Path(directory)


@pytest.fixture
def daemon(scratch):
    if not os.environ.get("MOMENTD_BINARY"):
        pytest.skip("MOMENTD_BINARY does not name the daemon")
    import momentd

    with momentd.spawn(scratch / "state", log=scratch / "log") as running:
        yield running
    if running.process.returncode != 0:
        sys.stderr.write((scratch / "log").read_text())
    assert running.process.returncode == 0


@pytest.fixture
def other_daemon(scratch):
    if not os.environ.get("MOMENTD_BINARY"):
        pytest.skip("MOMENTD_BINARY does not name the daemon")
    import momentd

    def start(**arguments):
        return momentd.spawn(scratch / "other-state", log=scratch / "other-log", **arguments)

    return start


@pytest.fixture
def streaming_daemon(other_daemon, scratch):
    """A daemon with the smallest pool, and its state directory: see STREAMED of bare_trainer."""
    from bare_trainer import SMALLEST_POOL

    with other_daemon(arguments=SMALLEST_POOL) as running:
        yield running, scratch / "other-state"


class Pair:
    """A model stepped by momentd, and its twin stepped by torch on fp32 copies of the parameters."""

    def __init__(self, model, ours, theirs=None):
        """`ours(model)` and `theirs(model)` make the optimizers; the twin is of fp32."""
        self.model = model
        self.twin = copy.deepcopy(model)
        self.masters = copy.deepcopy(model).float()
        self.ours = ours(self.model)
        self.theirs = theirs(self.masters) if theirs is not None else None

    def both(self):
        return zip(self.model.parameters(), self.masters.parameters())

    def gradients(self, loss, only=None):
        """Gradients of `loss(model)` in both; the masters' are widened copies of the model's."""
        self.model.zero_grad()
        loss(self.model).backward()
        for parameter, master in self.both():
            master.grad = None if parameter.grad is None else parameter.grad.float()

    def step(self, loss):
        self.gradients(loss)
        self.ours.step()
        self.theirs.step()

    def assert_equal(self):
        import torch

        for (name, parameter), master in zip(
            self.model.named_parameters(), self.masters.parameters()
        ):
            expected = master.detach().to(parameter.dtype)
            assert torch.equal(parameter.detach(), expected), name
