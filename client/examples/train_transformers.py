"""Hugging Face's Trainer with optimizer state in momentd.

    momentd --state-dir /nvme/momentd --socket-dir /run/momentd &
    python train_transformers.py --output run --socket /run/momentd/momentd.sock

Run it again and the Trainer goes on at its last checkpoint. `--optimizer torch` trains with torch's
AdamW; the losses are the same. With `torchrun --nproc-per-node 2 train_transformers.py --fsdp ...`
the Trainer shards the model, and each rank has a store with its shards.
"""

import argparse
import json
import pathlib

import momentd.torch
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Sentences(torch.utils.data.Dataset):
    """Random tokens, each followed by its double."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(50, (8,), generator=generator)
        tokens = torch.stack([tokens, 2 * tokens], dim=1).flatten()
        return {"input_ids": tokens, "labels": tokens}


class Losses(TrainerCallback):
    """Writes the loss of each step to a file."""

    def __init__(self, file):
        self._file = file

    def on_log(self, training, state, control, logs=None, **_):
        if "loss" in logs and state.is_world_process_zero:
            with open(self._file, "a") as losses:
                print(json.dumps({"step": state.global_step, "loss": logs["loss"]}), file=losses)


def small_model():
    set_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=100,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            attention_dropout=0.1,
            use_cache=False,
        )
    )


def optimizer(arguments, model, training, checkpoint):
    """The class and its arguments: the way into the Trainer that works under FSDP, too. The Trainer
    adds the groups, with weight_decay of its own; they carry no names, so `module` gives them."""
    if arguments.optimizer == "torch":
        return torch.optim.AdamW, {"lr": training.learning_rate}
    return momentd.torch.AdamW, {
        "lr": training.learning_rate,
        "job": arguments.job,
        "module": model,
        "resume": "auto" if checkpoint else "never",
        "socket": arguments.socket,
    }


def last_checkpoint(folder):
    """The newest that is whole: the Trainer writes its own state after all else. transformers'
    get_last_checkpoint() takes what a killed run was writing, too."""
    whole = [file.parent for file in folder.glob("checkpoint-*/trainer_state.json")]
    whole.sort(key=lambda checkpoint: int(checkpoint.name.rpartition("-")[2]))
    return str(whole[-1]) if whole else None


SHARDED = {
    "version": 2,
    "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
    "state_dict_type": "SHARDED_STATE_DICT",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--optimizer", choices=("momentd", "torch"), default="momentd")
    parser.add_argument("--job", default="example-transformers")
    parser.add_argument("--socket", help="of the daemon; $MOMENTD_SOCKET by default")
    parser.add_argument("--fsdp", action="store_true", help="shard over the ranks of torchrun")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    arguments.output.mkdir(exist_ok=True)
    model = small_model()
    checkpoint = last_checkpoint(arguments.output)
    training = TrainingArguments(
        output_dir=arguments.output,
        max_steps=arguments.steps,
        per_device_train_batch_size=4,
        learning_rate=3e-3,
        weight_decay=0.1,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        max_grad_norm=1.0,
        save_steps=4,
        logging_steps=1,
        fsdp=arguments.fsdp,
        fsdp_config=SHARDED if arguments.fsdp else None,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
    )
    trainer = Trainer(
        model,
        training,
        train_dataset=Sentences(),
        optimizer_cls_and_kwargs=optimizer(arguments, model, training, checkpoint),
        callbacks=[Losses(arguments.output / "losses.jsonl")],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    if arguments.fsdp:
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model()


if __name__ == "__main__":
    main()
