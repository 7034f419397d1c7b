"""Imported by the server that ranks are forked from (launcher.py): what a training run would import
at its first call, each rank anew."""

import torch
import torch.distributed.fsdp
import torch.distributed.optim  # noqa: F401

import momentd.torch  # noqa: F401

torch.optim.SGD([torch.zeros(1, requires_grad=True)])
