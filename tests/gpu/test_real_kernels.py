"""Profiles te and torch-cuda-210 against the kernels of Transformer Engine and torch 2.10.

real_kernels.py says where they come from; without them these tests are skipped.
"""

import dataclasses
import os

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if "MOMENT_CUDA_KERNEL_LIBRARY" not in os.environ:
    pytest.skip("MOMENT_CUDA_KERNEL_LIBRARY is not set", allow_module_level=True)

import kernel_library
import real_kernels
from gpu_optimizers import CASES, Case, State, differing, generator, spread

needs_te = pytest.mark.skipif("MOMENT_TE_CUBIN" not in os.environ,
                              reason="MOMENT_TE_CUBIN is not set")
needs_torch_210 = pytest.mark.skipif("MOMENT_TORCH_210_ADAM_CUBIN" not in os.environ,
                                     reason="MOMENT_TORCH_210_ADAM_CUBIN is not set")


def random_cases():
    random = torch.Generator().manual_seed(3)
    for trial in range(40):
        draw = torch.rand(6, generator=random, dtype=torch.float64).tolist()
        yield Case(is_adam=trial % 2 == 0, lr=10 ** (-6 * draw[0]),
                   betas=(draw[1], 1 - 10 ** (-6 * draw[2])), eps=10 ** (-12 * draw[3]),
                   weight_decay=draw[4] if draw[5] < 0.7 else 0.0)


def compare(profile, theirs, case, *, count, steps_before, steps, seed):
    """Bits that differ in main, exp_avg, exp_avg_sq and, if they write one, the parameter."""
    random = generator(seed)
    ours = State(count, random, steps_before)
    other = ours.clone()
    parameter, their_parameter = torch.empty_like(ours.main), torch.empty_like(ours.main)
    total = 0
    for step in range(steps):
        gradient = spread(count, random, high=1)
        gradient[::11] = 0
        kernel_library.step(profile, *ours.tensors(), gradient, parameter, case=case,
                            t=steps_before + step + 1)
        if profile == "te":
            theirs.step(*other.tensors(), gradient, their_parameter, case=case,
                        t=steps_before + step + 1)
            total += differing(parameter, their_parameter)
        else:
            theirs.step(*other.tensors(), gradient, case=case, t=steps_before + step + 1)
        total += sum(differing(a, b) for a, b in zip(ours.tensors(), other.tensors()))
    return total


def all_differences(profile, theirs, cases):
    for seed, case in enumerate(cases):
        for count, steps_before, steps in ((1, 0, 2), (100_003, 0, 2), (100_003, 99_998, 2)):
            differences = compare(profile, theirs, case, count=count, steps_before=steps_before,
                                  steps=steps, seed=seed)
            if differences:
                yield f"{differences} in {count} elements at t {steps_before + 1}: {case}"


@needs_te
def test_te_has_the_bits_of_transformer_engine():
    # It has no maximize.
    cases = [dataclasses.replace(case, maximize=False) for case in CASES.values()]
    theirs = real_kernels.TransformerEngine()
    assert list(all_differences("te", theirs, [*cases, *random_cases()])) == []
    assert compare("te", theirs, CASES["adamw-llm"], count=1 << 22, steps_before=0, steps=40,
                   seed=9) == 0


@needs_torch_210
def test_torch_cuda_210_has_the_bits_of_torch_210():
    theirs = real_kernels.Torch210()
    cases = [*CASES.values(), *random_cases()]
    assert list(all_differences("torch-cuda-210", theirs, cases)) == []
    assert compare("torch-cuda-210", theirs, CASES["adamw-llm"], count=1 << 22, steps_before=0,
                   steps=40, seed=9) == 0
