"""A GPT of a few million parameters over bytes, and the text that it reads."""

from __future__ import annotations

import dataclasses
import pathlib
import sysconfig

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of the model; `context` is in bytes of text."""

    width: int = 256
    layers: int = 4
    heads: int = 4
    context: int = 128


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a layer norm and added to its input."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.feed_forward_norm = nn.LayerNorm(shape.width)
        self.feed_forward_in = nn.Linear(shape.width, 4 * shape.width)
        self.feed_forward_out = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] -> the same."""
        batch, length, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).split(width, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = functional.gelu(self.feed_forward_in(self.feed_forward_norm(x)))
        return x + self.feed_forward_out(hidden)


class Gpt(nn.Module):
    """Predicts the next byte."""

    def __init__(self, shape: Shape = Shape()):
        super().__init__()
        self.shape = shape
        self.bytes = nn.Embedding(256, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.dropout = nn.Dropout(0.1)  # draws from torch's generator; a resume restores that
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, 256, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """[batch, context + 1] bytes as int64 -> mean loss of predicting each from those before."""
        source, target = text[:, :-1], text[:, 1:]
        positions = torch.arange(source.shape[1])
        x = self.dropout(self.bytes(source) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.reshape(-1, 256), target.reshape(-1))


def read_text() -> torch.Tensor:
    """The licence texts of this machine, or the sources of its Python library, as uint8."""
    licences = sorted(pathlib.Path("/usr/share/common-licenses").glob("*"))
    own = (path for path in licences if path.is_file() and not path.is_symlink())
    text = b"\n".join(path.read_bytes() for path in own)
    if len(text) < 100_000:
        library = pathlib.Path(sysconfig.get_path("stdlib"))
        text = b"\n".join(path.read_bytes() for path in sorted(library.glob("*.py")))
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


class Batches:
    """Random windows of the text. `state` is all that the next batch depends on."""

    def __init__(self, text: torch.Tensor, batch: int, context: int, seed: int):
        self._text = text
        self._batch = batch
        self._context = context
        self._generator = torch.Generator().manual_seed(seed)

    def next(self) -> torch.Tensor:
        """[batch, context + 1], int64."""
        limit = len(self._text) - self._context
        starts = torch.randint(limit, (self._batch,), generator=self._generator)
        windows = [self._text[start : start + self._context + 1] for start in starts.tolist()]
        return torch.stack(windows).long()

    @property
    def state(self) -> torch.Tensor:
        return self._generator.get_state()

    @state.setter
    def state(self, value: torch.Tensor) -> None:
        self._generator.set_state(value)
