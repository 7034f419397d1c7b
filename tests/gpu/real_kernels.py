"""Kernels of other people's builds, launched as their own host code launches them.

Extracted, never committed:

    cuobjdump -xelf sm_90.cubin libtransformer_engine.so    # of the wheel transformer_engine_cu13
    cuobjdump -xelf sm_90.cubin libtorch_cuda.so            # of the wheel torch 2.10.0
    grep -l AdamFunctorMaster *.cubin; grep -l FusedAdamMathFunctorIf *.cubin

MOMENT_TE_CUBIN names the first that grep finds, MOMENT_TORCH_210_ADAM_CUBIN and
MOMENT_TORCH_210_ADAMW_CUBIN those of fused_adam_impl and fused_adamw_impl without amsgrad.
"""

import ctypes
import os
import pathlib
import re
import struct

import torch

_CHUNK = 65536
_BLOCK = 512
_MAX_BLOCKS = 320


def _driver():
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuLaunchKernel.argtypes = (
        [ctypes.c_void_p] + [ctypes.c_uint] * 7
        + [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)])
    return driver


class Kernel:
    """A function of a cubin, by a pattern of its mangled name."""

    def __init__(self, path, pattern):
        image = pathlib.Path(path).read_bytes()
        names = set(re.findall(rb"_Z\w*" + pattern + rb"\w*", image))
        assert len(names) == 1, f"{path} has {len(names)} functions like {pattern}"
        torch.cuda.init()
        torch.empty(1, device="cuda")
        self._driver = _driver()
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(module), image))
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), module,
                                                     names.pop()))

    def launch(self, blocks, parameters):
        """`parameters`: the bytes of all of them, as the compiler lays them out."""
        buffer = ctypes.create_string_buffer(parameters, len(parameters))
        size = ctypes.c_size_t(len(parameters))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
        self._check(self._driver.cuLaunchKernel(self._function, blocks, 1, 1, _BLOCK, 1, 1, 0,
                                                torch.cuda.current_stream().cuda_stream, None,
                                                extra))

    @staticmethod
    def _check(result):
        assert result == 0, f"CUDA error {result}"


def _blocks(count):
    blocks = (count + _CHUNK - 1) // _CHUNK
    assert blocks <= _MAX_BLOCKS
    to_tensor = bytes(_MAX_BLOCKS)
    to_chunk = struct.pack(f"<{_MAX_BLOCKS}i", *range(blocks), *([0] * (_MAX_BLOCKS - blocks)))
    return blocks, to_tensor + to_chunk


def _column(value, entries, code="Q"):
    return struct.pack(f"<{entries}{code}", value, *([0] * (entries - 1)))


class TransformerEngine:
    """multi_tensor_adam with fp32 mains, moments and gradients, and fp32 model parameters."""

    def __init__(self):
        self._kernel = Kernel(os.environ["MOMENT_TE_CUBIN"], rb"AdamFunctorMasterIffffiE")

    def step(self, main, exp_avg, exp_avg_sq, gradient, parameter, *, case, t):
        beta1, beta2 = (ctypes.c_float(beta).value for beta in case.betas)
        corrections = [1 - beta1**t, 1 - beta2**t]
        blocks, block_tables = _blocks(main.numel())
        tensors = (gradient, parameter, exp_avg, exp_avg_sq, main)
        metadata = b"".join(_column(tensor.data_ptr(), 30) for tensor in tensors)
        metadata += _column(main.numel(), 30) + block_tables + bytes(4)
        metadata += bytes(0xBE8 - len(metadata))
        parameters = struct.pack("<qQ", _CHUNK, 0) + metadata + bytes(4)
        parameters += struct.pack("<6fif", beta1, beta2, *corrections, case.eps, case.lr,
                                  0 if case.is_adam else 1, case.weight_decay)
        assert len(parameters) == 0xC1C
        self._kernel.launch(blocks, parameters)


class Torch210:
    """The fused Adam and AdamW of torch 2.10."""

    def __init__(self):
        self._kernels = {
            is_adam: Kernel(os.environ[f"MOMENT_TORCH_210_{name}_CUBIN"],
                            rb"FusedAdamMathFunctorIfLi4E")
            for is_adam, name in ((True, "ADAM"), (False, "ADAMW"))}

    def step(self, main, exp_avg, exp_avg_sq, gradient, *, case, t):
        step = torch.tensor(float(t), device="cuda")
        blocks, block_tables = _blocks(main.numel())
        metadata = b"".join(_column(tensor.data_ptr(), 36)
                            for tensor in (main, gradient, exp_avg, exp_avg_sq))
        metadata += _column(main.numel(), 36) + _column(step.data_ptr(), 36) + block_tables
        metadata += bytes(0xD10 - len(metadata))
        parameters = metadata + struct.pack("<Q5d?7xQQ", 0, case.lr, *case.betas,
                                            case.weight_decay, case.eps, case.maximize, 0, 0)
        assert len(parameters) == 0xD58
        self._kernels[case.is_adam].launch(blocks, parameters)
        torch.cuda.synchronize()
