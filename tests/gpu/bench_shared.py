"""1e9 parameters on the GPU, their state in the daemon's pool: seconds a step, rates beside the copy
engines', and the GPU memory of trainer and daemon beside torch's resident optimizer."""

import argparse
import statistics
import tempfile
import time

from sharing import momentd, torch

TENSORS = 20


def used_mib():
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 2**20


def model(count):
    parts = [torch.nn.Parameter(torch.randn(count // TENSORS, device="cuda") * 0.02)
             for _ in range(TENSORS)]
    for part in parts:
        part.grad = torch.randn_like(part) * 0.01
    return parts


def duplex(copy_bytes=1 << 30, repeats=5):
    """GB/s of both copy engines at once, both directions added."""
    down = torch.empty(copy_bytes, dtype=torch.uint8, device="cuda")
    up = torch.empty_like(down)
    host_in = torch.empty(copy_bytes, dtype=torch.uint8, pin_memory=True)
    host_out = torch.empty(copy_bytes, dtype=torch.uint8, pin_memory=True)
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    rates = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.cuda.stream(streams[0]):
            up.copy_(host_in, non_blocking=True)
        with torch.cuda.stream(streams[1]):
            host_out.copy_(down, non_blocking=True)
        torch.cuda.synchronize()
        rates.append(2 * copy_bytes / (time.perf_counter() - started) / 1e9)
    return statistics.median(rates[1:])


def timed(step, count):
    seconds = []
    for _ in range(count):
        torch.cuda.synchronize()
        started = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds


def show(name, seconds):
    print(f"{name}: median {statistics.median(seconds):.4f} s, {min(seconds):.4f} to "
          f"{max(seconds):.4f}, {len(seconds)} steps")


def resident(count):
    torch.cuda.reset_peak_memory_stats()
    optimizer = torch.optim.AdamW(model(count), lr=1e-4, fused=True)
    show("resident, torch fused", timed(optimizer.step, 12)[2:])
    return used_mib()


def streamed(arguments, rate):
    with tempfile.TemporaryDirectory(dir=arguments.directory) as path:
        with momentd.spawn(path + "/state", log=path + "/log",
                           arguments=["--host-memory", arguments.host_memory,
                                      "--ring-slots", str(arguments.ring_slots)]) as daemon:
            optimizer = momentd.torch.AdamW(
                model(arguments.parameters), lr=1e-4, fused=True, job="bench", socket=daemon.socket,
                commit_every=arguments.commit_every)
            started = time.perf_counter()
            optimizer.step()
            print(f"first step (opens and fills the store): {time.perf_counter() - started:.1f} s; "
                  f"transport {optimizer.info().transport}")
            timed(optimizer.step, 3)
            seconds = timed(optimizer.step, arguments.steps)
            used = used_mib()
            show(f"streamed, commit_every={arguments.commit_every}", seconds)
            moved = 24 * arguments.parameters
            reached = moved / statistics.median(seconds) / 1e9
            print(f"  {reached:.1f} GB/s of {rate:.1f} GB/s duplex: {reached / rate:.3f}")
            print(f"  {optimizer.last_statistics}")
            started = time.perf_counter()
            optimizer.detach()
            print(f"  detach {time.perf_counter() - started:.3f} s")
            optimizer.close()
    return used


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=1_000_000_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--host-memory", default="27GiB")
    parser.add_argument("--ring-slots", type=int, default=4)
    parser.add_argument("--commit-every", type=int, default=0)
    parser.add_argument("--directory", default=None)
    arguments = parser.parse_args()
    rate = duplex()
    torch.cuda.empty_cache()
    idle = used_mib()
    by_resident = resident(arguments.parameters) - idle
    torch.cuda.empty_cache()
    by_streamed = streamed(arguments, rate) - idle
    moments = 8 * arguments.parameters / 2**20
    print(f"GPU memory of both processes beyond the idle trainer: resident {by_resident:.0f} MiB, "
          f"streamed {by_streamed:.0f} MiB, saved {by_resident - by_streamed:.0f} MiB of "
          f"{moments:.0f} MiB of moments ({(by_resident - by_streamed) / moments:.3f})")


if __name__ == "__main__":
    main()
