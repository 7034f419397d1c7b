"""What is in the files after a step, beside the state of torch's own optimizer: mains, moments and t."""

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")

import momentd.torch  # noqa: E402
from bare_trainer import newest_file, store_directory  # noqa: E402
from momentctl import momentctl  # noqa: E402
from test_optimizer import make_loss, make_model, make_pair  # noqa: E402


def stored(directory):
    """Tensors of the newest bucket file by segment and name (one bucket)."""
    with safetensors.safe_open(newest_file(directory).path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys() if not name.startswith("__")}


def assert_stored(pair, directory):
    tensors = stored(directory)
    for name, master in pair.masters.named_parameters():
        state = pair.theirs.state[master]
        assert torch.equal(tensors[f"main/{name}"], master.detach()), name
        assert torch.equal(tensors[f"exp_avg/{name}"], state["exp_avg"]), name
        assert torch.equal(tensors[f"exp_avg_sq/{name}"], state["exp_avg_sq"]), name


def steps_by_tensor(directory):
    """t of every tensor, as the newest commit has it."""
    newest = max(momentctl("inspect", directory)["commits"], key=lambda commit: commit["id"])
    return [run["t"] for run in newest["steps"] for _ in range(run["count"])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mains_and_moments_are_fp32_and_torchs_after_fifty_steps(daemon, scratch, dtype):
    """Never rounded through the parameter's type."""
    pair = make_pair(daemon, model=make_model(dtype), lr=1e-2)
    for step in range(50):
        pair.step(make_loss(step))
    pair.ours.flush()
    assert_stored(pair, store_directory(scratch / "state", job="job"))


def test_a_resume_at_58_goes_on_with_58_everywhere(daemon, scratch):
    pair = make_pair(daemon, lr=1e-2, betas=(0.9, 0.97))
    for step in range(58):
        pair.step(make_loss(step))
    pair.ours.close()
    directory = store_directory(scratch / "state", job="job")
    assert steps_by_tensor(directory) == [58] * 6
    pair.ours = momentd.torch.AdamW(
        pair.model.parameters(),
        lr=1e-2,
        betas=(0.9, 0.97),
        job="job",
        socket=daemon.socket,
        module=pair.model,
        resume="must",
    )
    pair.ours.resume()
    assert pair.ours.sequence == 58
    for step in range(58, 61):
        pair.step(make_loss(step))
        pair.assert_equal()
    pair.ours.flush()
    assert steps_by_tensor(directory) == [61] * 6
    assert_stored(pair, directory)


def test_only_tensors_with_gradients_advance_their_t(daemon, scratch):
    pair = make_pair(daemon, lr=1e-2)
    for step in range(4):
        pair.gradients(make_loss(step))
        if step >= 2:
            pair.model[2].weight.grad = pair.masters[2].weight.grad = None
        pair.ours.step()
        pair.theirs.step()
    pair.ours.flush()
    directory = store_directory(scratch / "state", job="job")
    assert steps_by_tensor(directory) == [4, 4, 2, 4, 4, 4]
    assert_stored(pair, directory)
