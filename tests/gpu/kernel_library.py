"""The CUDA kernels through tests/cuda/kernel_library.cc, on torch's tensors."""

import ctypes
import os

import torch

PROFILES = {"torch-cuda": 1, "torch-cuda-foreach": 2, "torch-cuda-210": 3, "te": 4}
OPERATIONS = {"adam": 0, "refresh": 1, "materialize": 2}
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Call(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay")]
        + [("gradient_scale", ctypes.c_float)]
        + [(name, ctypes.c_uint8)
           for name in ("is_adam", "bias_correction", "maximize", "profile", "op")]
        + [("t", ctypes.c_uint64), ("count", ctypes.c_uint64)]
        + [(name, ctypes.c_uint8)
           for name in ("exp_avg_type", "exp_avg_sq_type", "gradient_type", "parameter_type")]
        + [(name, ctypes.c_void_p)
           for name in ("main", "exp_avg", "exp_avg_sq", "gradient", "parameter")])


def _load():
    library = ctypes.CDLL(os.environ["MOMENT_CUDA_KERNEL_LIBRARY"])
    for name, result, arguments in (
            ("error", ctypes.c_char_p, []),
            ("plan", ctypes.c_void_p, [ctypes.POINTER(Call)]),
            ("run", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
            ("free", None, [ctypes.c_void_p]),
            ("reference", None, [ctypes.POINTER(Call)]),
            ("power", ctypes.c_float, [ctypes.c_float, ctypes.c_float]),
            ("approximations", ctypes.c_int,
             [ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p])):
        function = getattr(library, f"moment_cuda_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


_library = _load()


def _call(profile, main, exp_avg, exp_avg_sq, gradient, parameter, *, case, t,
          gradient_scale=1.0, bias_correction=True, operation="adam"):
    for tensor in (main, exp_avg, exp_avg_sq, gradient, parameter):
        assert tensor.is_contiguous() and tensor.numel() == main.numel()
    return Call(
        lr=case.lr, beta1=case.betas[0], beta2=case.betas[1], eps=case.eps,
        weight_decay=case.weight_decay, gradient_scale=gradient_scale, is_adam=case.is_adam,
        bias_correction=bias_correction, maximize=case.maximize, profile=PROFILES[profile],
        op=OPERATIONS[operation], t=t, count=main.numel(), exp_avg_type=TYPES[exp_avg.dtype],
        exp_avg_sq_type=TYPES[exp_avg_sq.dtype], gradient_type=TYPES[gradient.dtype],
        parameter_type=TYPES[parameter.dtype], main=main.data_ptr(), exp_avg=exp_avg.data_ptr(),
        exp_avg_sq=exp_avg_sq.data_ptr(), gradient=gradient.data_ptr(),
        parameter=parameter.data_ptr())


def _check(failed):
    if failed:
        raise RuntimeError(_library.moment_cuda_error().decode())


class Plan:
    """A call over tensors on the GPU, which stay where they are; runs on torch's current stream."""

    def __init__(self, *tensors, **options):
        torch.cuda.synchronize()
        self._tensors = tensors
        self._plan = _library.moment_cuda_plan(ctypes.byref(_call(*tensors, **options)))
        _check(not self._plan)

    def run(self):
        _check(_library.moment_cuda_run(self._plan, torch.cuda.current_stream().cuda_stream))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        torch.cuda.synchronize()
        _library.moment_cuda_free(self._plan)


def step(*tensors, **options):
    """One step (or other operation) in place: profile, main, exp_avg, exp_avg_sq, gradient,
    parameter; contiguous and one-dimensional, `main` fp32, on the GPU."""
    with Plan(*tensors, **options) as plan:
        plan.run()


def reference(*tensors, **options):
    """The same by the reference on the processor, over tensors on the CPU. Of profile te only with
    exact reciprocals and roots."""
    _library.moment_cuda_reference(ctypes.byref(_call(*tensors, **options)))


def power(base, exponent):
    """powf of the GPU, computed on the processor."""
    return _library.moment_cuda_power(base, exponent)


def approximate(value, root):
    """The GPU's approximate square root (or reciprocal) of one fp32 number."""
    bits = torch.tensor(value, dtype=torch.float32).view(torch.int32).item() & 0xFFFFFFFF
    result = torch.empty(1)
    _check(_library.moment_cuda_approximations(int(root), bits, 1, result.data_ptr()))
    return result.item()
