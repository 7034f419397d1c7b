"""Profile torch-cpu against the installed torch, bit for bit (docs/internals/numerics.md)."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

if "MOMENT_KERNEL_LIBRARY" not in os.environ:
    pytest.skip("MOMENT_KERNEL_LIBRARY is not set: ctest sets it", allow_module_level=True)

import kernel_library
import torch_profile_cases as cases
from momentd.torch.profile import torch_profile
from torch_optimizers import CASES, Case

PROFILE = cases.root_of_torch()
SETS = kernel_library.available_sets()
FLOATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def differing(case, **options):
    return cases.compare(case, ieee_square_root=PROFILE == "torch-cpu-ieee", **options)


def test_the_installed_torch_follows_one_of_the_profiles():
    assert PROFILE is not None, f"capability {torch.backends.cpu.get_cpu_capability()}"


def test_the_client_asks_for_the_profile_of_the_installed_torch():
    assert torch_profile() == PROFILE


@pytest.mark.skipif(PROFILE != "torch-cpu", reason="torch takes another square root here")
def test_square_root_has_torchs_bits_at_every_exponent():
    values = cases.radicands()
    assert cases.differing(values.sqrt(), kernel_library.square_root(values)) == 0


@pytest.mark.skipif(PROFILE != "torch-cpu", reason="torch takes another square root here")
def test_square_root_has_torchs_bits_for_every_mantissa():
    for octave in (0, 1):
        first = 0x3F800000 + (octave << 23)
        values = torch.arange(first, first + (1 << 23), dtype=torch.int32).view(torch.float32)
        assert cases.differing(values.sqrt(), kernel_library.square_root(values)) == 0


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("name", CASES)
def test_fp32_over_sizes_and_steps(name, instruction_set):
    for seed, count in enumerate(cases.SIZES):
        for steps_before in (0, 9, 99_998):
            assert differing(CASES[name], count=count, steps_before=steps_before, steps=2,
                             instruction_set=instruction_set, seed=seed) == 0, (
                f"count {count}, t {steps_before + 1}, seed {seed}")


@pytest.mark.parametrize("instruction_set", SETS)
def test_a_run_from_the_first_step_on(instruction_set):
    assert differing(CASES["adamw-llm"], count=2053, steps_before=0, steps=300,
                     instruction_set=instruction_set, seed=11) == 0


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("gradient", FLOATS)
@pytest.mark.parametrize("parameter", FLOATS)
@pytest.mark.parametrize("name", ["adamw", "adam-l2"])
def test_16_bit_parameters_and_gradients(name, parameter, gradient, instruction_set):
    for count in (1, 37, 4099):
        for steps_before in (0, 57, 99_999):
            assert differing(CASES[name], count=count, steps_before=steps_before, steps=4,
                             parameter_type=FLOATS[parameter], gradient_type=FLOATS[gradient],
                             instruction_set=instruction_set, seed=count) == 0, (
                f"count {count}, t {steps_before + 1}")


@pytest.mark.parametrize("steps_before", [0, 3, 31, 4095, 65_535, 99_999])
def test_bias_corrections_of_random_hyperparameters(steps_before):
    generator = torch.Generator().manual_seed(steps_before)
    for trial in range(25):
        draw = torch.rand(6, generator=generator, dtype=torch.float64).tolist()
        case = Case(is_adam=trial % 2 == 0, lr=10 ** (-6 * draw[0]),
                          betas=(draw[1], 1 - 10 ** (-6 * draw[2])), eps=10 ** (-12 * draw[3]),
                          weight_decay=draw[4] if draw[5] < 0.7 else 0.0)
        assert differing(case, count=61, steps_before=steps_before, steps=2,
                         instruction_set=SETS[-1], seed=trial) == 0, f"{case}, seed {trial}"


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("name", ["adamw", "adam-l2", "adamw-low-beta1"])
def test_nan_infinity_zero_and_subnormal_gradients(name, instruction_set):
    values = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, -3e-42, 1e-38, 3e38,
              -3e38, 1e-22, 1e-30]

    def spoil(gradient, step):
        for i, value in enumerate(values):
            gradient[(i * 5 + step) % gradient.numel()] = value

    for steps_before in (0, 500):
        assert differing(CASES[name], count=67, steps_before=steps_before, steps=5,
                         instruction_set=instruction_set, seed=3, spoil=spoil) == 0


def test_foreach_has_the_same_bits():
    case = dataclasses.replace(CASES["adam-l2"], foreach=True)
    assert differing(case, count=4099, steps_before=9, steps=3, instruction_set=SETS[-1],
                     seed=4) == 0


@pytest.mark.parametrize("steps_before", [(1 << 24) - 1, 1 << 24])
def test_the_step_stands_still_at_2_to_the_24_as_in_torch(steps_before):
    # The second case: torch adds 1 to an fp32 2^24 and gets it back; ours is told 2^24 + 1.
    case = Case(betas=(0.9, 1 - 1e-8))
    assert differing(case, count=37, steps_before=steps_before, steps=1, instruction_set=SETS[0],
                     seed=1) == 0


def under(**environment):
    """The cases in a process of their own, under another CPU capability."""
    program = pathlib.Path(__file__).with_name("torch_profile_cases.py")
    done = subprocess.run([sys.executable, program], env={**os.environ, **environment},
                          stdout=subprocess.PIPE, check=True, timeout=120)
    return json.loads(done.stdout)


def test_the_profile_does_not_depend_on_torchs_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # torch cuts tensors above 32,768 elements
    try:
        assert differing(CASES["adamw"], count=70_003, steps_before=9, steps=2,
                         instruction_set=SETS[-1], seed=2) == 0
    finally:
        torch.set_num_threads(threads)


def has_avx512():
    return "avx512" in SETS


@pytest.mark.parametrize("capability", ["avx2", "avx512"])
def test_the_profile_does_not_depend_on_torchs_vector_width(capability):
    if capability not in SETS:
        pytest.skip(f"no {capability} here")
    result = under(ATEN_CPU_CAPABILITY=capability)
    assert result.pop("capability") == capability.upper()
    assert result.pop("client") == result.pop("profile") == PROFILE
    assert set(result.values()) == {0}, result


@pytest.mark.skipif("avx2" not in SETS, reason="needs AVX2 to compare with")
def test_torch_without_fma_rounds_differently():
    # Not a profile of ours: no processor of the last ten years runs torch so.
    result = under(ATEN_CPU_CAPABILITY="default")
    assert result["adamw"] > 0


@pytest.mark.skipif(not (has_avx512() and torch.backends.mkl.is_available()),
                    reason="needs MKL's two code paths")
def test_mkl_without_avx512_follows_torch_cpu_ieee():
    result = under(MKL_ENABLE_INSTRUCTIONS="AVX2")
    del result["capability"]
    assert result.pop("client") == "torch-cpu-ieee"
    assert result.pop("profile") == "torch-cpu-ieee"
    assert set(result.values()) == {0}, result
