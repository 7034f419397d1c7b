"""Resident memory of a trainer with torch's AdamW and with momentd's, at rest and at its peak while the
state is saved and loaded.

    python tests/bench/trainer_memory.py [--parameters 167e6] [--directory DIR]

Needs MOMENTD_LIBRARY, MOMENTD_BINARY and PYTHONPATH as the Python tests do. The daemon is another
process and is not counted. Each optimizer runs in a process of its own. Three kinds of memory are told
apart: *own* is the process's and cannot be given back; *ring* is what it shares with the daemon, of a
fixed size; *file* is page cache that the process has mapped, which the kernel takes back when it needs
it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import torch

LAYER = 1 << 24  # above what malloc keeps for itself when it is freed
KINDS = {"own": "RssAnon", "ring": "RssShmem", "file": "RssFile"}


def resident():
    """Bytes by kind."""
    sizes = {}
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.startswith("Rss"):
            sizes[name] = int(value.split()[0]) * 1024
    return [sizes[name] for name in KINDS.values()]


class Peak:
    """The largest values while it runs, by looking every two milliseconds."""

    def __enter__(self):
        self.sizes = resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        self._begin = time.monotonic()
        return self

    def __exit__(self, *failure):
        self.seconds = time.monotonic() - self._begin
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while not self._stop.wait(0.002):
            self.sizes = [max(pair) for pair in zip(self.sizes, resident())]


class Report:
    """Rows relative to what the process had with the model alone."""

    def __init__(self):
        self._base = resident()
        self.rows = {}

    def add(self, name, sizes, seconds=None):
        more = [max(size - base, 0) for size, base in zip(sizes, self._base)]
        self.rows[name] = [*more, seconds]

    def at_rest(self, name):
        self.add(name, resident())

    def peak(self, name, call):
        with Peak() as peak:
            result = call()
        self.add(name, peak.sizes, peak.seconds)
        return result


def make_parameters(count):
    return [torch.nn.Parameter(torch.zeros(LAYER)) for _ in range(max(count // LAYER, 1))]


def step(parameters, optimizer):
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def measure(arguments):
    torch.set_num_threads(1)
    parameters = make_parameters(arguments.count)
    if arguments.socket:
        import momentd.torch

        optimizer = momentd.torch.AdamW(
            [(f"layer{index}", parameter) for index, parameter in enumerate(parameters)],
            job="memory",
            socket=arguments.socket,
        )
    else:
        optimizer = torch.optim.AdamW(parameters)
    warm = [torch.nn.Parameter(torch.zeros(1))]
    step(warm, torch.optim.AdamW(warm))  # what torch loads for its first step
    report = Report()
    step(parameters, optimizer)
    step(parameters, optimizer)
    report.at_rest("after two steps")
    state_dict = report.peak("state_dict()", optimizer.state_dict)
    report.peak("torch.save", lambda: torch.save(state_dict, arguments.file))
    del state_dict
    report.at_rest("after the save")
    loaded = torch.load(arguments.file, mmap=True)
    report.peak("load_state_dict", lambda: optimizer.load_state_dict(loaded))
    del loaded
    step(parameters, optimizer)
    report.at_rest("after the load and a step")
    if arguments.socket:
        optimizer.close()
    json.dump(report.rows, sys.stdout)


def run(arguments, directory, socket):
    command = [sys.executable, __file__, "--count", str(arguments.count)]
    command += ["--file", str(directory / "state.pt")] + (["--socket", socket] if socket else [])
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    (directory / "state.pt").unlink()
    return json.loads(output)


def print_table(count, torchs, ours):
    print(f"{count:,} fp32 parameters, {8 * count / 1e9:.2f} GB of moments")
    print("bytes a parameter beside the model; rows of calls are peaks")
    print(f"{'':26}{'torch AdamW':>24}{'momentd':>24}")
    print(f"{'':26}" + "".join(f"{kind:>8}" for kind in KINDS) * 2)
    for name in torchs:
        cells = [row[name][kind] / count for row in (torchs, ours) for kind in range(len(KINDS))]
        print(f"{name:26}" + "".join(f"{cell:8.2f}" for cell in cells))
    for name in ("state_dict()", "torch.save", "load_state_dict"):
        print(f"{name + ', seconds':26}{torchs[name][-1]:24.2f}{ours[name][-1]:24.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=float, default=167e6)
    parser.add_argument("--directory", help="for the state and the saved file")
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--socket", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.count:
        measure(arguments)
        return
    import momentd

    arguments.count = max(int(arguments.parameters) // LAYER, 1) * LAYER
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = pathlib.Path(name)
        torchs = run(arguments, directory, None)
        with momentd.spawn(directory / "state") as daemon:
            ours = run(arguments, directory, daemon.socket)
    print_table(arguments.count, torchs, ours)


if __name__ == "__main__":
    main()
