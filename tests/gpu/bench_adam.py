"""The Adam kernels beside torch's fused AdamW and the device-to-device copy, in one run.

Prints medians and spread of GB/s: bytes that must be read and written, over GPU time by events.
"""

import os
import statistics
import sys

import torch

if not torch.cuda.is_available() or "MOMENT_CUDA_KERNEL_LIBRARY" not in os.environ:
    print("skipped: no GPU, or MOMENT_CUDA_KERNEL_LIBRARY is not set")
    sys.exit(77)

import kernel_library  # noqa: E402
from gpu_optimizers import CASES, State, generator, spread  # noqa: E402

ELEMENTS = 256 << 20  # 1 GiB an array: far more than the L2 cache
REPEATS = 30


def rates(work, bytes_moved):
    for _ in range(5):
        work()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
              for _ in range(REPEATS)]
    for begin, end in events:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return sorted(bytes_moved / begin.elapsed_time(end) / 1e6 for begin, end in events)


def report(name, values):
    median = statistics.median(values)
    print(f"{name:62} {median:7.0f} GB/s ({values[0]:.0f} to {values[-1]:.0f})")
    return median


def main():
    random = generator(1)
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    state = State(ELEMENTS, random, 1)
    gradient = spread(ELEMENTS, random)
    parameter = torch.empty_like(state.main)
    copy = report("copy within the GPU, read and written",
                  rates(lambda: parameter.copy_(gradient), 8 * ELEMENTS))

    case = CASES["adamw"]
    torch_parameter = torch.nn.Parameter(state.main.clone())
    torch_parameter.grad = gradient
    optimizer = torch.optim.AdamW([torch_parameter], lr=case.lr, weight_decay=case.weight_decay,
                                  fused=True)
    optimizer.step()
    fused = report("torch AdamW fused, fp32, 28 bytes an element",
                   rates(optimizer.step, 28 * ELEMENTS))
    del optimizer, torch_parameter

    for profile in kernel_library.PROFILES:
        with kernel_library.Plan(profile, *state.tensors(), gradient, parameter, case=case,
                                 t=10) as plan:
            # The kernel writes the parameter beside the main: 4 bytes more than torch's.
            mine = report(f"{profile}, all fp32, 32 bytes an element",
                          rates(plan.run, 32 * ELEMENTS))
        print(f"{'':62} {mine / copy:7.2f} of the copy, {mine / fused:.2f} of torch fused")

    narrow = [tensor.to(torch.bfloat16) for tensor in (gradient, parameter)]
    with kernel_library.Plan("torch-cuda", *state.tensors(), *narrow, case=case, t=10) as plan:
        report("torch-cuda, bf16 gradients and parameters, 28 bytes", rates(plan.run, 28 * ELEMENTS))
    with kernel_library.Plan("torch-cuda", state.main, state.exp_avg.to(torch.bfloat16),
                             state.exp_avg_sq.to(torch.bfloat16), *narrow, case=case,
                             t=10) as plan:
        report("torch-cuda, bf16 moments too, 20 bytes", rates(plan.run, 20 * ELEMENTS))


if __name__ == "__main__":
    main()
