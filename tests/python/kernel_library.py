"""The daemon's Adam kernels through tests/device/kernel_library.cc, on torch's CPU tensors."""

import ctypes
import os

import torch

INSTRUCTION_SETS = {"scalar": 0, "avx2": 1, "avx512": 2}
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class AdamCall(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay")]
        + [("gradient_scale", ctypes.c_float)]
        + [(name, ctypes.c_uint8)
           for name in ("is_adam", "bias_correction", "maximize", "ieee_square_root")]
        + [("t", ctypes.c_uint64), ("count", ctypes.c_uint64)]
        + [(name, ctypes.c_uint8)
           for name in ("instruction_set", "exp_avg_type", "exp_avg_sq_type", "gradient_type",
                        "parameter_type")]
        + [(name, ctypes.c_void_p)
           for name in ("main", "exp_avg", "exp_avg_sq", "gradient", "parameter")])


def _load():
    library = ctypes.CDLL(os.environ["MOMENT_KERNEL_LIBRARY"])
    library.moment_adam.argtypes = [ctypes.POINTER(AdamCall)]
    library.moment_adam.restype = None
    library.moment_square_root.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    library.moment_square_root.restype = None
    library.moment_available.argtypes = [ctypes.c_uint8]
    library.moment_available.restype = ctypes.c_int
    return library


_library = _load()


def available_sets():
    return [name for name, number in INSTRUCTION_SETS.items() if _library.moment_available(number)]


def adam(instruction_set, main, exp_avg, exp_avg_sq, gradient, parameter, *, t, lr, betas, eps,
         weight_decay, is_adam, maximize=False, gradient_scale=1.0, bias_correction=True,
         ieee_square_root=False):
    """One step in place over contiguous one-dimensional tensors; `main` is fp32."""
    for tensor in (main, exp_avg, exp_avg_sq, gradient, parameter):
        assert tensor.is_contiguous() and tensor.numel() == main.numel()
    call = AdamCall(
        lr=lr, beta1=betas[0], beta2=betas[1], eps=eps, weight_decay=weight_decay,
        gradient_scale=gradient_scale, is_adam=is_adam, bias_correction=bias_correction,
        maximize=maximize, ieee_square_root=ieee_square_root, t=t, count=main.numel(),
        instruction_set=INSTRUCTION_SETS[instruction_set], exp_avg_type=TYPES[exp_avg.dtype],
        exp_avg_sq_type=TYPES[exp_avg_sq.dtype], gradient_type=TYPES[gradient.dtype],
        parameter_type=TYPES[parameter.dtype], main=main.data_ptr(), exp_avg=exp_avg.data_ptr(),
        exp_avg_sq=exp_avg_sq.data_ptr(), gradient=gradient.data_ptr(),
        parameter=parameter.data_ptr())
    _library.moment_adam(ctypes.byref(call))


def square_root(radicands):
    """The square root of profile torch-cpu, of a contiguous fp32 tensor."""
    roots = torch.empty_like(radicands)
    _library.moment_square_root(radicands.data_ptr(), roots.data_ptr(), radicands.numel())
    return roots
