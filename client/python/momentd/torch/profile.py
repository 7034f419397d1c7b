import torch

# A number whose square root the two codes of MKL round differently.
_RADICAND = 66.75
_ROOT_WITH_AVX512 = 0x4102B898


def torch_profile():
    """The arithmetic that the installed torch has on this processor, for parameters on the CPU.

    torch's square root depends on the processor: with AVX-512, MKL rounds some roots down where
    they should be rounded up. The name of the profile is a string of `momentd.Options.profile`.
    """
    root = torch.tensor([_RADICAND], dtype=torch.float32).sqrt().view(torch.int32).item()
    return "torch-cpu" if root == _ROOT_WITH_AVX512 else "torch-cpu-ieee"
