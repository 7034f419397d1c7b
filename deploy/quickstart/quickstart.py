#!/usr/bin/env python3
"""Trains one model three ways and compares them bit for bit: with torch.optim.AdamW, with momentd,
and with momentd while the trainer is killed half way and started again."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

TRAINER = pathlib.Path(__file__).with_name("train.py")
# Less than the state takes: it streams from disk in each step, as that of a large model does.
DAEMON_ARGUMENTS = ["--host-memory", "32MiB"]


@dataclasses.dataclass
class Run:
    """One finished training run."""

    title: str
    curve: list[dict]
    result: dict
    steps: list[dict]  # what the trainer reported, step by step, over all its starts
    seconds: float
    state_bytes: int = 0  # on disk
    killed_at: int = 0  # the last step reported before the kill


def show_progress(title: str, report: dict, steps: int) -> None:
    line = f"  {title}: step {report['step']}/{steps}, loss {report['loss']:.3f}, "
    line += f"{report['seconds']:.2f} s a step (optimizer {report['optimizer_seconds']:.3f} s)"
    if sys.stdout.isatty():
        end = "\n" if report["step"] == steps else ""
        print(f"\r{line}\033[K", end=end, flush=True)
    elif report["step"] % max(1, steps // 5) == 0:
        print(line, flush=True)


def start(command: list[str], title: str, steps: int, kill_after: int) -> list[dict]:
    """Runs the trainer once. With `kill_after` it is killed as soon as it reports that step."""
    reports = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if not line.startswith("{"):
                print(f"  {title}: {line.strip()}", flush=True)
                continue
            reports.append(json.loads(line))
            show_progress(title, reports[-1], steps)
            if reports[-1]["step"] == kill_after:
                process.send_signal(signal.SIGKILL)
                break
    expected = -signal.SIGKILL if kill_after else 0
    if process.returncode != expected:
        raise SystemExit(f"{title}: the trainer ended with {process.returncode}, not {expected}")
    return reports


def train(
    title: str, options: list[str], out: pathlib.Path, steps: int, kill_after: int = 0
) -> Run:
    print(title, flush=True)
    command = [sys.executable, str(TRAINER), "--out", str(out), "--steps", str(steps), *options]
    started = time.monotonic()
    reports = []
    if kill_after:
        reports += start(command, title, steps, kill_after)
        print(f"\n  killed with SIGKILL after step {kill_after}; starting it again", flush=True)
    reports += start(command, title, steps, 0)
    curve = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    result = json.loads((out / "result.json").read_text())
    return Run(title, curve, result, reports, time.monotonic() - started, killed_at=kill_after)


def train_with_momentd(title: str, out: pathlib.Path, steps: int, kill_after: int = 0) -> Run:
    import momentd

    state_directory = out / "state"
    state_directory.mkdir(parents=True)
    log = out / "momentd.log"
    with momentd.spawn(state_directory, arguments=DAEMON_ARGUMENTS, log=log) as daemon:
        options = ["--optimizer", "momentd", "--socket", str(daemon.socket)]
        run = train(title, options, out, steps, kill_after)
    files = (path for path in state_directory.rglob("*") if path.is_file())
    run.state_bytes = sum(path.stat().st_size for path in files)
    return run


def row(name: str, *values: str) -> str:
    return f"{name:<38}" + "".join(f"{value:>18}" for value in values)


def megabytes(count: float) -> str:
    return f"{count / 1e6:.1f} MB"


def traffic(run: Run, first: bool) -> str:
    """Bytes read and written by the first step, or a later one's median."""
    if "bytes_read" not in run.steps[0]:
        return "-"
    chosen = run.steps[:1] if first else sorted(run.steps[1:], key=lambda s: s["bytes_read"])
    middle = chosen[len(chosen) // 2]
    return f"{middle['bytes_read'] / 1e6:.1f} / {middle['bytes_written'] / 1e6:.1f} MB"


def table(runs: list[Run]) -> str:
    reference = runs[0]
    parameters = reference.result["parameters"]

    def same(run: Run, equal: bool) -> str:
        return "-" if run is reference else ("yes" if equal else "NO")

    def resident(run: Run) -> str:
        return f"{run.result['optimizer_bytes'] / parameters:.2f}"

    def on_disk(run: Run) -> str:
        return f"{megabytes(run.state_bytes)}" if run.state_bytes else "-"

    lines = [
        f"{parameters:,} parameters, {len(reference.curve)} steps",
        row("", *(run.title for run in runs)),
        row("last loss", *(f"{run.curve[-1]['loss']:.6f}" for run in runs)),
        row("losses bit-identical", *(same(r, r.curve == reference.curve) for r in runs)),
        row(
            "parameters bit-identical",
            *(same(r, r.result["digest"] == reference.result["digest"]) for r in runs),
        ),
        row("optimizer bytes a parameter, trainer", *map(resident, runs)),
        row("peak memory of the trainer", *(megabytes(r.result["peak_bytes"]) for r in runs)),
        row("state on disk", *map(on_disk, runs)),
        row("read / written by step 1", *(traffic(r, True) for r in runs)),
        row("read / written by later steps", *(traffic(r, False) for r in runs)),
        row("seconds", *(f"{run.seconds:.1f}" for run in runs)),
    ]
    return "\n".join(lines)


def draw(runs: list[Run], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    styles = [
        {"color": "#9ecae1", "linewidth": 6},
        {"color": "#08519c", "linewidth": 2},
        {"color": "#d94801", "linewidth": 1.5, "linestyle": "--"},
    ]
    for run, style in zip(runs, styles):
        steps = [entry["step"] for entry in run.curve]
        losses = [entry["loss"] for entry in run.curve]
        axes.plot(steps, losses, label=run.title, **style)
        if run.killed_at:
            axes.axvline(run.killed_at, color="#d94801", linewidth=0.8)
            axes.annotate(" SIGKILL, resumed", (run.killed_at, run.curve[0]["loss"]))
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats a byte)")
    axes.set_title("The same run, three ways")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="emptied, then filled")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    out, steps = arguments.out, arguments.steps
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    runs = [
        train("torch AdamW", ["--optimizer", "torch"], out / "torch", steps),
        train_with_momentd("momentd", out / "momentd", steps),
        train_with_momentd("momentd, killed", out / "killed", steps, kill_after=steps // 2),
    ]
    draw(runs, out / "loss.png")
    print("\n" + table(runs))
    print(f"\nloss curves: {out / 'loss.png'}")
    reference = runs[0]
    differing = [
        run.title
        for run in runs[1:]
        if run.curve != reference.curve or run.result["digest"] != reference.result["digest"]
    ]
    if differing:
        print(f"DIFFERENT from torch.optim.AdamW: {', '.join(differing)}", file=sys.stderr)
        return 1
    print("all three are bit-identical")
    return 0


if __name__ == "__main__":
    sys.exit(main())
