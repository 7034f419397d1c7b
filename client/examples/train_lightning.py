"""Lightning with optimizer state in momentd, gradient clipping among it.

    momentd --state-dir /nvme/momentd --socket-dir /run/momentd &
    python train_lightning.py --output run --socket /run/momentd/momentd.sock

Run it again and it goes on at its last checkpoint. `--optimizer torch` trains with torch's AdamW;
the losses are the same.
"""

import argparse
import json
import pathlib

import lightning
import momentd.torch
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn


class Regression(lightning.LightningModule):
    def __init__(self, arguments, resume):
        super().__init__()
        self.arguments = arguments
        self.resume = resume
        self.layers = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch, index):
        inputs, targets = batch
        loss = (self.layers(inputs) - targets).square().mean()
        with open(self.arguments.output / "losses.jsonl", "a") as losses:
            entry = {"step": self.global_step + 1, "loss": loss.item()}
            losses.write(json.dumps(entry) + "\n")
        return loss

    def configure_optimizers(self):
        optimizer = self._optimizer()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler}}

    def _optimizer(self):
        if self.arguments.optimizer == "torch":
            return torch.optim.AdamW(self.parameters(), lr=1e-2, weight_decay=0.1)
        return momentd.torch.AdamW(
            self.parameters(),
            lr=1e-2,
            weight_decay=0.1,
            job=self.arguments.job,
            module=self,
            resume=self.resume,
            socket=self.arguments.socket,
        )


def batches():
    """Four batches an epoch."""
    inputs = torch.rand(64, 8, generator=torch.Generator().manual_seed(1))
    dataset = torch.utils.data.TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))
    return torch.utils.data.DataLoader(dataset, batch_size=16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--optimizer", choices=("momentd", "torch"), default="momentd")
    parser.add_argument("--job", default="example-lightning")
    parser.add_argument("--socket", help="of the daemon; $MOMENTD_SOCKET by default")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    arguments.output.mkdir(exist_ok=True)
    lightning.seed_everything(0)
    checkpoints = ModelCheckpoint(dirpath=arguments.output, filename="last", save_top_k=1)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=arguments.epochs,
        gradient_clip_val=1.0,
        callbacks=[checkpoints],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=arguments.output,
    )
    last = arguments.output / "last.ckpt"
    checkpoint = last if last.exists() else None
    model = Regression(arguments, resume="auto" if checkpoint else "never")
    trainer.fit(model, batches(), ckpt_path=checkpoint)
    torch.save(trainer.model.state_dict(), arguments.output / "model.pt")


if __name__ == "__main__":
    main()
