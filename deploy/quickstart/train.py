#!/usr/bin/env python3
"""Trains the GPT of model.py on text of this machine, with torch's AdamW or with momentd's.

Both give the same bits: arithmetic, thread count and seeds are fixed. With momentd the run may be
killed at any moment; the same command goes on from its last finished step.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import pathlib
import resource
import sys
import time

import torch

from model import Batches, Gpt, read_text

SEED = 20260
BATCH = 6
WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.95)
BUCKET_ELEMENTS = 500_000  # so small that this model has several buckets


def learning_rate(step: int, steps: int) -> float:
    """A short warm-up, then half a cosine down to a tenth; `step` counts from 1."""
    warm_up = max(1, steps // 10)
    if step <= warm_up:
        return 1e-3 * step / warm_up
    progress = (step - warm_up) / max(1, steps - warm_up)
    return 1e-4 + 0.5 * (1e-3 - 1e-4) * (1 + math.cos(math.pi * progress))


def parameter_groups(model: torch.nn.Module) -> list[dict]:
    """Matrices decay, vectors (norms, biases) do not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]


def pack(batches: Batches) -> bytes:
    """What the rest of the run depends on beside parameters and optimizer state."""
    buffer = io.BytesIO()
    torch.save({"generator": torch.get_rng_state(), "batches": batches.state}, buffer)
    return buffer.getvalue()


def unpack(blob: bytes, batches: Batches) -> None:
    held = torch.load(io.BytesIO(blob), weights_only=True)
    torch.set_rng_state(held["generator"])
    batches.state = held["batches"]


class Curve:
    """The losses so far, one JSON line a step, kept across a kill."""

    def __init__(self, path: pathlib.Path, finished: int):
        kept = []
        if finished > 0:
            kept = [line for line in path.read_text().splitlines() if _is_until(line, finished)]
        path.write_text("".join(line + "\n" for line in kept))
        self._file = path.open("a")

    def append(self, entry: dict) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


def _is_until(line: str, finished: int) -> bool:
    try:
        return json.loads(line)["step"] <= finished
    except ValueError:  # the kill cut this line
        return False


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of optimizer state that this process holds."""
    tensors = (
        value
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value)
    )
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def digest(model: torch.nn.Module) -> str:
    """SHA-256 over the names and bits of all parameters."""
    result = hashlib.sha256()
    for name, parameter in model.named_parameters():
        result.update(name.encode())
        result.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def make_optimizer(arguments: argparse.Namespace, model: Gpt) -> torch.optim.Optimizer:
    groups = parameter_groups(model)
    if arguments.optimizer == "torch":
        return torch.optim.AdamW(groups, lr=1e-3, betas=BETAS)
    import momentd.torch

    return momentd.torch.AdamW(
        groups,
        lr=1e-3,
        betas=BETAS,
        job=arguments.job,
        resume="auto",
        socket=arguments.socket,
        module=model,
        bucket_elements=BUCKET_ELEMENTS,
    )


def train(arguments: argparse.Namespace) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)

    model = Gpt()
    batches = Batches(read_text(), BATCH, model.shape.context, SEED)
    optimizer = make_optimizer(arguments, model)
    finished = 0
    if arguments.optimizer == "momentd":
        blob = optimizer.resume()
        if blob:
            unpack(blob, batches)
            finished = optimizer.sequence
            print(f"resumed after step {finished}", flush=True)
    curve = Curve(out / "curve.jsonl", finished)
    parameters = sum(p.numel() for p in model.parameters())

    for step in range(finished + 1, arguments.steps + 1):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, arguments.steps)
        loss = model(batches.next())
        optimizer.zero_grad()
        loss.backward()
        curve.append({"step": step, "loss": loss.item()})
        stepping = time.perf_counter()
        if arguments.optimizer == "momentd":
            optimizer.step(blob=pack(batches))
        else:
            optimizer.step()
        now = time.perf_counter()
        report = {
            "step": step,
            "loss": loss.item(),
            "seconds": now - started,
            "optimizer_seconds": now - stepping,
        }
        if arguments.optimizer == "momentd":
            report["bytes_read"] = optimizer.last_statistics.bytes_read
            report["bytes_written"] = optimizer.last_statistics.bytes_written
        print(json.dumps(report), flush=True)

    (out / "result.json").write_text(
        json.dumps(
            {
                "digest": digest(model),
                "parameters": parameters,
                "optimizer_bytes": state_bytes(optimizer),
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )
    if arguments.optimizer == "momentd":
        optimizer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", choices=["torch", "momentd"], required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the results")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--job", default="quickstart")
    parser.add_argument("--socket", help="momentd's, for --optimizer momentd")
    train(parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
