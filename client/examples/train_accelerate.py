"""accelerate with FSDP2 and optimizer state in momentd: each rank has a store with its shards.

    momentd --state-dir /nvme/momentd --socket-dir /run/momentd &
    torchrun --nproc-per-node 2 train_accelerate.py --output run --socket /run/momentd/momentd.sock

Run it again and it goes on at its last checkpoint. `--optimizer torch` trains with torch's AdamW;
the losses are the same.
"""

import argparse
import json
import pathlib

import accelerate
import momentd.torch
import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, inputs):
        return inputs + torch.tanh(self.linear(inputs))


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), Layer(), Layer(), nn.Linear(32, 1))


def make_optimizer(arguments, model, resume):
    """Before the model is sharded: accelerate puts the shards into its groups later."""
    if arguments.optimizer == "torch":
        return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    return momentd.torch.AdamW(
        model.parameters(),
        lr=1e-2,
        weight_decay=0.1,
        job=arguments.job,
        module=model,
        resume=resume,
        socket=arguments.socket,
    )


def batches():
    inputs = torch.rand(192, 8, generator=torch.Generator().manual_seed(1))
    dataset = torch.utils.data.TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))
    return torch.utils.data.DataLoader(dataset, batch_size=8)  # of each rank


def save(accelerator, folder):
    """Whole or not at all: a run that is killed meanwhile goes on at the checkpoint before."""
    unfinished = folder.with_name(f"unfinished-{folder.name}")
    accelerator.save_state(unfinished)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        unfinished.rename(folder)


def train(accelerator, arguments):
    model = small_model()
    done = 0
    for checkpoint in sorted(arguments.output.glob("step-*")):
        done = int(checkpoint.name.removeprefix("step-"))
    optimizer = make_optimizer(arguments, model, resume="auto" if done else "never")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    model, optimizer, loader, scheduler = accelerator.prepare(
        model, optimizer, batches(), scheduler
    )
    if done:
        accelerator.load_state(arguments.output / f"step-{done:04d}")
    losses = open(arguments.output / f"losses-{accelerator.process_index}.jsonl", "a")
    loader = accelerator.skip_first_batches(loader, done)
    for step, (inputs, targets) in enumerate(loader, done + 1):
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        print(json.dumps({"step": step, "loss": loss.item()}), file=losses, flush=True)
        if step % 4 == 0:
            save(accelerator, arguments.output / f"step-{step:04d}")
    accelerator.save_model(model, arguments.output / "model")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--optimizer", choices=("momentd", "torch"), default="momentd")
    parser.add_argument("--job", default="example-accelerate")
    parser.add_argument("--socket", help="of the daemon; $MOMENTD_SOCKET by default")
    arguments = parser.parse_args()
    arguments.output.mkdir(exist_ok=True)
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Layer"],
        state_dict_type="SHARDED_STATE_DICT",
        reshard_after_forward=True,
        cpu_ram_efficient_loading=False,
    )
    accelerator = accelerate.Accelerator(fsdp_plugin=plugin)
    train(accelerator, arguments)
    accelerator.end_training()


if __name__ == "__main__":
    main()
