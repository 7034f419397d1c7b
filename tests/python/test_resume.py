"""Resuming, losing the daemon, and being forked."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")

import momentd  # noqa: E402
import momentd.torch  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402


def run(optimizer, model, steps):
    for step in steps:
        model.zero_grad()
        make_loss(step)(model).backward()
        optimizer.step(blob=str(step).encode())


def undisturbed(daemon, steps, **arguments):
    """The parameters of a run that nothing happens to."""
    model = make_model()
    optimizer = momentd.torch.AdamW(
        model.parameters(),
        lr=1e-2,
        job="undisturbed",
        socket=daemon.socket,
        module=model,
        **arguments,
    )
    run(optimizer, model, range(steps))
    optimizer.close()
    return [parameter.detach().clone() for parameter in model.parameters()]


def reopen(daemon, resume="must", seed=99, **arguments):
    model = make_model(seed=seed)
    optimizer = momentd.torch.AdamW(
        model.parameters(),
        lr=1e-2,
        job="job",
        socket=daemon.socket,
        module=model,
        resume=resume,
        **arguments,
    )
    return optimizer, model


def assert_parameters(model, expected):
    for parameter, value in zip(model.parameters(), expected):
        assert torch.equal(parameter.detach(), value)


def test_a_resumed_run_equals_an_undisturbed_one(daemon):
    expected = undisturbed(daemon, 10)
    optimizer, model = reopen(daemon, resume="auto", seed=0)
    assert optimizer.resume() is None
    run(optimizer, model, range(6))
    optimizer.close()
    optimizer, model = reopen(daemon)
    with pytest.raises(RuntimeError, match="resume"):
        optimizer.step()
    assert optimizer.resume() == b"5"
    assert optimizer.sequence == 6
    run(optimizer, model, range(6, 10))
    assert_parameters(model, expected)


def test_existing_state_wants_a_choice(daemon):
    optimizer, model = reopen(daemon, resume=None, seed=0)
    run(optimizer, model, range(2))
    optimizer.close()
    with pytest.raises(momentd.Error, match="ALREADY_EXISTS.*sequence 2.*resume"):
        reopen(daemon, resume=None)[0].resume()
    with pytest.raises(momentd.Error, match="NOT_FOUND"):
        reopen(daemon, resume="must", role="nobody")[0].resume()
    with pytest.raises(ValueError, match="resume"):
        reopen(daemon, resume="perhaps")
    optimizer, model = reopen(daemon, resume="never", seed=0)
    run(optimizer, model, range(3))
    assert optimizer.sequence == 3
    assert_parameters(model, undisturbed(daemon, 3))


def test_going_back_to_an_earlier_commit(daemon):
    optimizer, model = reopen(daemon, resume="auto", seed=0)
    run(optimizer, model, range(5))
    optimizer.close()
    optimizer, model = reopen(daemon)
    sequences = [commit.sequence for commit in optimizer.commits()]
    assert sequences[0] == 5 and 4 in sequences
    assert optimizer.resume(sequence=4) == b"3"
    run(optimizer, model, range(4, 5))
    assert_parameters(model, undisturbed(daemon, 5))


def test_a_skip_advances_the_sequence_alone(daemon):
    optimizer, model = reopen(daemon, resume="auto", seed=0)
    run(optimizer, model, range(2))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert optimizer.skip(blob=b"skipped") == 3
    assert_parameters(model, before)
    optimizer.close()
    optimizer, model = reopen(daemon)
    assert optimizer.resume() == b"skipped"
    assert_parameters(model, before)
    run(optimizer, model, range(2, 3))
    assert optimizer.sequence == 4


def test_the_blob_may_come_from_a_callable(daemon):
    optimizer, model = reopen(daemon, resume="auto", seed=0, blob=lambda: b"from the callable")
    model.zero_grad()
    make_loss(0)(model).backward()
    optimizer.step()
    optimizer.close()
    optimizer, _ = reopen(daemon)
    assert optimizer.resume() == b"from the callable"


TRAINER = """
import os, sys
sys.path[:0] = {path!r}
import torch
from test_resume import make_model, reopen, run
from types import SimpleNamespace
daemon = SimpleNamespace(socket={socket!r})
optimizer, model = reopen(daemon, resume="auto", seed=0)
optimizer.resume()
for step in range(optimizer.sequence, 1000):
    run(optimizer, model, [step])
    print(optimizer.sequence, flush=True)
"""


def test_a_killed_trainer_loses_nothing(daemon):
    expected = undisturbed(daemon, 12)
    script = TRAINER.format(path=sys.path, socket=daemon.socket)
    trainer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    answered = 0
    for line in trainer.stdout:
        answered = int(line)
        if answered >= 7:
            os.kill(trainer.pid, signal.SIGKILL)
            break
    trainer.wait()
    optimizer, model = reopen(daemon, connect_for=20)
    optimizer.resume()
    assert optimizer.sequence >= answered
    assert optimizer.sequence <= 12
    run(optimizer, model, range(optimizer.sequence, 12))
    assert_parameters(model, expected)


def test_a_drained_daemon_loses_nothing(other_daemon, scratch, daemon):
    expected = undisturbed(daemon, 8)
    sockets = scratch / "sockets"
    sockets.mkdir()
    first = other_daemon(socket_dir=str(sockets))
    optimizer, model = reopen(first, resume="auto", seed=0)
    run(optimizer, model, range(4))
    first.close()
    assert first.process.returncode == 0
    with other_daemon(socket_dir=str(sockets)):
        run(optimizer, model, range(4, 8))
        assert_parameters(model, expected)
        assert optimizer.info().reconnects >= 1
        optimizer.close()


def test_a_killed_daemon_rewinds_at_most_one_step(other_daemon, scratch, daemon):
    expected = undisturbed(daemon, 8)
    sockets = scratch / "sockets"
    sockets.mkdir()
    first = other_daemon(socket_dir=str(sockets))
    optimizer, model = reopen(first, resume="auto", seed=0)
    run(optimizer, model, range(4))
    first.process.kill()
    first.process.wait()
    with other_daemon(socket_dir=str(sockets)):
        try:
            run(optimizer, model, range(4, 5))
        except momentd.Rewound as rewound:
            assert rewound.sequence == 3
            with pytest.raises(momentd.Rewound):
                optimizer.step()
            assert optimizer.resume() == b"2"
        run(optimizer, model, range(optimizer.sequence, 8))
        assert_parameters(model, expected)
        optimizer.close()


def test_no_daemon_at_all_is_an_error_in_time(scratch):
    start = time.monotonic()
    with pytest.raises(momentd.Error, match="UNAVAILABLE"):
        momentd.torch.AdamW(
            make_model().parameters(),
            job="job",
            socket=str(scratch / "nobody.sock"),
            connect_for=0.5,
        )
    assert time.monotonic() - start < 5


def test_a_lost_daemon_is_given_up_in_time(other_daemon):
    running = other_daemon()
    optimizer, model = reopen(running, resume="auto", seed=0, retry_for=0.5)
    run(optimizer, model, range(2))
    running.process.kill()
    running.process.wait()
    start = time.monotonic()
    with pytest.raises(momentd.Error, match="UNAVAILABLE"):
        run(optimizer, model, range(2, 3))
    assert time.monotonic() - start < 10
    running.close()


class Rows(torch.utils.data.Dataset):
    """Rows that, read in a worker, also try the optimizer of the parent."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __len__(self):
        return 64

    def __getitem__(self, index):
        refused = 0
        for call in (self.optimizer.step, self.optimizer.flush, self.optimizer.info):
            try:
                call()
            except momentd.ForkedError:
                refused += 1
        return torch.randn(31), refused


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_forked_workers_neither_hang_nor_harm(daemon):
    pair = make_pair(daemon, lr=1e-2)
    pair.step(make_loss(0))
    loader = torch.utils.data.DataLoader(
        Rows(pair.ours), batch_size=8, num_workers=8, multiprocessing_context="fork", timeout=60
    )
    for step, (_, refused) in enumerate(loader):
        assert refused.tolist() == [3] * 8
        pair.step(make_loss(step))
        pair.assert_equal()
    pair.ours.flush()


FORKING = """
import os, sys
sys.path[:0] = {path!r}
from types import SimpleNamespace
from test_resume import reopen, run
optimizer, model = reopen(SimpleNamespace(socket={socket!r}), resume="auto", seed=0)
run(optimizer, model, [0])
child = os.fork()
if child == 0:
    optimizer = None  # collected here: nothing may hang or reach the daemon
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
run(optimizer, model, [1])
print(optimizer.sequence, flush=True)
"""


def test_a_forked_child_may_end_as_it_likes(daemon):
    script = FORKING.format(path=sys.path, socket=daemon.socket)
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.split() == ["2"], result.stderr


def test_ctrl_c_ends_a_wait(other_daemon):
    running = other_daemon()
    optimizer, model = reopen(running, resume="auto", seed=0, retry_for=60)
    run(optimizer, model, range(1))
    running.process.kill()
    running.process.wait()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(optimizer, model, range(1, 2))
    assert time.monotonic() - start < 20
    running.close()


def test_spawn_says_why_a_daemon_does_not_start(scratch):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        momentd.spawn(scratch / "state", binary="/nowhere/momentd")
    with pytest.raises(momentd.Error, match="status"):
        momentd.spawn(scratch / "state", binary="/bin/false", timeout=5)


def test_torch_and_grpcio_share_the_process(daemon):
    """Their own protobuf and gRPC beside those of libmoment, whichever comes first."""
    grpc = pytest.importorskip("grpc")
    channel = grpc.insecure_channel(f"unix:{daemon.socket}")
    grpc.channel_ready_future(channel).result(timeout=10)
    pair = make_pair(daemon)
    for step in range(3):
        pair.step(make_loss(step))
    pair.assert_equal()
    channel.close()
