"""The CUDA kernels against torch on the GPU, bit for bit (docs/internals/numerics.md)."""

import dataclasses
import os

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if "MOMENT_CUDA_KERNEL_LIBRARY" not in os.environ:
    pytest.skip("MOMENT_CUDA_KERNEL_LIBRARY is not set", allow_module_level=True)

import kernel_library
from gpu_optimizers import (CASES, FLOATS, IMPLEMENTATIONS, Case, State, Torch, bits, differing,
                            generator, is_ambiguous, spread)

PROFILES = list(IMPLEMENTATIONS)


def cases_of(*names):
    """Pairs of a profile and the name of a case that torch has one sequence for."""
    return [(profile, name) for profile in PROFILES for name in names or CASES
            if not (profile == "torch-cuda" and is_ambiguous(CASES[name]))]


def compare(profile, case, *, count, steps_before, steps, parameter_type=torch.float32,
            gradient_type=torch.float32, seed=0, spoil=None, implementation=None, sizes=None,
            spread_low=-7):
    """Bits that differ in main, exp_avg, exp_avg_sq and the parameter, over `steps` steps."""
    random = generator(seed)
    ours = State(count, random, steps_before)
    theirs = Torch(case, ours, steps_before, implementation or IMPLEMENTATIONS[profile], sizes)
    parameter = torch.empty(count, dtype=parameter_type, device="cuda")
    total = 0
    for step in range(steps):
        gradient = spread(count, random, low=spread_low, high=1).to(gradient_type)
        if spoil is not None:
            spoil(gradient, step)
        theirs.step(gradient)
        kernel_library.step(profile, *ours.tensors(), gradient, parameter, case=case,
                            t=steps_before + step + 1)
        for mine, other in zip(ours.tensors(), theirs.flat.tensors()):
            total += differing(mine, other)
        total += differing(parameter, theirs.flat.main.to(parameter_type))
    return total


@pytest.mark.parametrize("profile, name", cases_of())
def test_fp32_over_sizes_and_steps(name, profile):
    for seed, count in enumerate((1, 3, 7, 1001, 4096, 33_003, 1_000_001)):
        for steps_before in (0, 9, 99_998):
            assert compare(profile, CASES[name], count=count, steps_before=steps_before, steps=2,
                           seed=seed) == 0, f"count {count}, t {steps_before + 1}, seed {seed}"


@pytest.mark.parametrize("profile, name", cases_of("adamw", "adamw-llm", "adam", "adam-l2"))
def test_forty_steps_of_four_million_elements(name, profile):
    def some_zeros(gradient, step):
        gradient[step::7] = 0

    assert compare(profile, CASES[name], count=1 << 22, steps_before=0, steps=40, seed=1,
                   spoil=some_zeros, spread_low=-7) == 0


@pytest.mark.parametrize("gradient", FLOATS)
@pytest.mark.parametrize("parameter", FLOATS)
@pytest.mark.parametrize("profile, name", cases_of("adamw", "adam", "adam-l2"))
def test_16_bit_parameters_and_gradients(name, parameter, gradient, profile):
    for count in (1, 37, 100_003):
        for steps_before in (0, 57):
            assert compare(profile, CASES[name], count=count, steps_before=steps_before, steps=3,
                           parameter_type=FLOATS[parameter], gradient_type=FLOATS[gradient],
                           seed=count) == 0, f"count {count}, t {steps_before + 1}"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("steps_before", [0, 3, 31, 4095, 65_535, 999_999])
def test_bias_corrections_of_random_hyperparameters(steps_before, profile):
    random = torch.Generator().manual_seed(steps_before)
    for trial in range(60):
        draw = torch.rand(6, generator=random, dtype=torch.float64).tolist()
        case = Case(is_adam=trial % 2 == 0, lr=10 ** (-6 * draw[0]),
                    betas=(draw[1], 1 - 10 ** (-6 * draw[2])), eps=10 ** (-12 * draw[3]),
                    weight_decay=draw[4] if draw[5] < 0.7 else 0.0)
        if profile == "torch-cuda" and is_ambiguous(case):
            case = dataclasses.replace(case, is_adam=False)
        assert compare(profile, case, count=61, steps_before=steps_before, steps=1,
                       seed=trial) == 0, f"{case}, seed {trial}"


@pytest.mark.parametrize("profile", PROFILES)
def test_betas_so_small_that_one_minus_them_is_one(profile):
    for betas in ((1e-9, 1e-9), (0.0, 0.0), (0.9, 1e-8)):
        assert compare(profile, Case(betas=betas), count=10_001, steps_before=4, steps=2) == 0


@pytest.mark.parametrize("profile, name", cases_of("adamw", "adam", "adam-l2", "adamw-low-beta1"))
def test_nan_infinity_zero_and_subnormal_gradients(name, profile):
    values = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, -3e-42, 1e-38, 3e38,
              -3e38, 1e-22, 1e-30]

    def spoil(gradient, step):
        for i, value in enumerate(values):
            gradient[(i * 5 + step) % gradient.numel()] = value

    for steps_before in (0, 500):
        assert compare(profile, CASES[name], count=67, steps_before=steps_before, steps=5, seed=3,
                       spoil=spoil) == 0


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("steps_before", [(1 << 24) - 1, 1 << 24])
def test_the_step_stands_still_at_2_to_the_24_as_in_torch(steps_before, profile):
    case = Case(betas=(0.9, 1 - 1e-8))
    assert compare(profile, case, count=37, steps_before=steps_before, steps=1, seed=1) == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_many_tensors_of_odd_sizes_and_alignments_in_torch(profile):
    sizes = [1, 5, 1000, 3, 70_001, 2, 65_536, 131_073]
    assert compare(profile, CASES["adamw-llm"], count=sum(sizes), steps_before=9, steps=3,
                   sizes=sizes, seed=4) == 0


@pytest.mark.skipif(torch.cuda.get_device_capability()[0] > 9, reason="compiled otherwise there")
def test_fused_adam_with_weight_decay_is_not_one_sequence():
    # The profile is the sequence that three elements of four have; here of a tensor whose elements
    # torch takes in aligned groups of four.
    case, count = CASES["adam-l2"], 1 << 20
    random = generator(8)
    ours = State(count, random, 9)
    theirs = Torch(case, ours, 9, {"fused": True})
    gradient = spread(count, random, high=1)
    theirs.step(gradient)
    kernel_library.step("torch-cuda", *ours.tensors(), gradient, torch.empty_like(ours.main),
                        case=case, t=10)
    differs = bits(ours.exp_avg) != bits(theirs.flat.exp_avg)
    positions = torch.arange(count, device="cuda") % 4
    assert not bool(differs[positions != 0].any())
    assert bool(differs[positions == 0].any())


def test_foreach_false_differs_and_is_no_profile():
    case = CASES["adamw"]
    differences = compare("torch-cuda-foreach", case, count=100_003, steps_before=9, steps=1,
                          implementation={"foreach": False, "fused": False})
    print(f"foreach=False: {differences} of 400012 numbers differ")
    assert differences > 0


def compare_with_reference(profile, case, *, count, t, seed, exp_avg=torch.float32,
                           exp_avg_sq=torch.float32, gradient_type=torch.float32,
                           parameter_type=torch.float32, **options):
    random = generator(seed)
    state = State(count, random, t - 1, exp_avg, exp_avg_sq)
    gradient = spread(count, random, high=0).to(gradient_type)
    parameter = torch.empty(count, dtype=parameter_type, device="cuda")
    on_cpu = [tensor.cpu() for tensor in (*state.tensors(), gradient, parameter)]
    kernel_library.step(profile, *state.tensors(), gradient, parameter, case=case, t=t, **options)
    kernel_library.reference(profile, *on_cpu, case=case, t=t, **options)
    return sum(differing(mine.cpu(), other)
               for mine, other in zip((*state.tensors(), gradient, parameter), on_cpu))


WITH_REFERENCE = ["torch-cuda", "torch-cuda-foreach", "torch-cuda-210"]


@pytest.mark.parametrize("profile", WITH_REFERENCE)
@pytest.mark.parametrize("name", CASES)
def test_the_reference_on_the_processor_has_the_kernels_bits(name, profile):
    for seed, t in enumerate((1, 2, 1000, 123_456)):
        assert compare_with_reference(profile, CASES[name], count=200_003, t=t, seed=seed) == 0


@pytest.mark.parametrize("profile", WITH_REFERENCE)
@pytest.mark.parametrize("exp_avg", FLOATS)
@pytest.mark.parametrize("exp_avg_sq", ["fp32", "bf16"])
@pytest.mark.parametrize("narrow", FLOATS)
def test_narrow_moments_have_the_references_bits(profile, exp_avg, exp_avg_sq, narrow):
    for count in (3, 20_001):
        assert compare_with_reference(
            profile, CASES["adamw"], count=count, t=17, seed=5, exp_avg=FLOATS[exp_avg],
            exp_avg_sq=FLOATS[exp_avg_sq], gradient_type=FLOATS[narrow],
            parameter_type=FLOATS[narrow], gradient_scale=0.37) == 0


@pytest.mark.parametrize("profile", WITH_REFERENCE)
def test_gradient_scale_and_no_bias_correction_have_the_references_bits(profile):
    for scale in (1.0, 0.125, 3.7e-3):
        for bias_correction in (True, False):
            assert compare_with_reference(
                profile, CASES["adam-l2-maximize"], count=5001, t=3, seed=6, gradient_scale=scale,
                bias_correction=bias_correction) == 0


@pytest.mark.parametrize("parameter_type", FLOATS.values())
def test_refresh_and_materialize_are_torchs_conversions(parameter_type):
    for count in (1, 5, 100_003):
        random = generator(7)
        state = State(count, random, 1)
        gradient = torch.zeros_like(state.main)
        parameter = torch.empty(count, dtype=parameter_type, device="cuda")
        before = state.clone()
        kernel_library.step("torch-cuda", *state.tensors(), gradient, parameter, case=CASES["adamw"],
                            t=1, operation="materialize")
        assert differing(parameter, state.main.to(parameter_type)) == 0
        kernel_library.step("torch-cuda", *state.tensors(), gradient, parameter, case=CASES["adamw"],
                            t=1, operation="refresh")
        assert differing(state.main, parameter.float()) == 0
        assert differing(state.exp_avg, before.exp_avg) == 0


def test_more_elements_than_a_32_bit_index_reaches():
    # 2^32 + 5 parameters of 2 bytes, mains of 4: what lies behind 2^32 is computed too.
    count = (1 << 32) + 5
    if torch.cuda.mem_get_info()[0] < 80 << 30:
        pytest.skip("needs 80 GiB of the GPU")
    main = torch.empty(count, device="cuda").fill_(1.25)
    main[-7:] = torch.arange(7, device="cuda", dtype=torch.float32)
    exp_avg = torch.zeros(count, device="cuda", dtype=torch.bfloat16)
    exp_avg_sq = torch.zeros(count, device="cuda", dtype=torch.bfloat16)
    gradient = torch.ones(count, device="cuda", dtype=torch.bfloat16)
    parameter = torch.zeros(count, device="cuda", dtype=torch.bfloat16)
    expected = State.__new__(State)
    expected.main, expected.exp_avg, expected.exp_avg_sq = (
        t[-7:].clone() for t in (main, exp_avg, exp_avg_sq))
    small = torch.zeros(7, device="cuda", dtype=torch.bfloat16)
    case = CASES["adamw"]
    kernel_library.step("torch-cuda", main, exp_avg, exp_avg_sq, gradient, parameter, case=case, t=1)
    kernel_library.step("torch-cuda", *expected.tensors(), gradient[-7:].clone(), small, case=case,
                        t=1)
    assert differing(main[-7:], expected.main) == 0
    assert differing(parameter[-7:], small) == 0
    assert bool((main[:-7] == main[0]).all()) and main[0].item() != 1.25
