"""Runs an example as a user would, and may kill it with SIGKILL after a number of optimizer steps.

    run_example.py <example> <steps before it is killed; 0: never> <argument>...

accelerate takes its FSDP plugin for ranks with accelerators alone: on CPUs it drops it without a
word and trains with plain data parallelism, and no option of its launcher changes that. Everything
behind that choice works on CPUs, so examples that shard are told that their ranks have accelerators.
"""

import os
import runpy
import signal
import sys

from torch.optim.optimizer import register_optimizer_step_post_hook


def kill_after(steps):
    def count(optimizer, arguments, keywords):
        count.steps += 1
        if count.steps == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    count.steps = 0
    register_optimizer_step_post_hook(count)


def shard_on_cpus():
    import torch
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    torch.distributed.init_process_group("gloo")
    PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
    PartialState.default_device = torch.device("cpu")
    PartialState.set_device = lambda state: setattr(state, "device", torch.device("cpu"))
    register_optimizer_step_post_hook(check_sharded)


def check_sharded(optimizer, arguments, keywords):
    from torch.distributed.tensor import DTensor

    for group in optimizer.param_groups:
        assert all(isinstance(parameter, DTensor) for parameter in group["params"])


def main():
    example, steps, *arguments = sys.argv[1:]
    if "accelerate" in os.path.basename(example) or "--fsdp" in arguments:
        shard_on_cpus()
    if int(steps):
        kill_after(int(steps))
    sys.argv = [example, *arguments]
    runpy.run_path(example, run_name="__main__")


main()
