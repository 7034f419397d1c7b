"""Objects of a trainer that have a state: how it is read and set."""

import random
import sys

import torch


def reader_of(value, name):
    """What gives the state of such an object. TypeError naming one that has none."""
    numpy = sys.modules.get("numpy")
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return lambda stateful: stateful.state_dict()
    if isinstance(value, torch.Generator):
        return torch.Generator.get_state
    if isinstance(value, random.Random):
        return random.Random.getstate
    if numpy is not None and isinstance(value, numpy.random.Generator):
        return lambda generator: generator.bit_generator.state
    raise TypeError(
        f"{name} is of type {type(value).__module__}.{type(value).__qualname__}: it has no "
        "state_dict() and load_state_dict(), and is no random generator"
    )


def set_state(value, state):
    """The object becomes what it was when its state was read."""
    if hasattr(value, "load_state_dict"):
        value.load_state_dict(state)
    elif isinstance(value, torch.Generator):
        value.set_state(state)
    elif isinstance(value, random.Random):
        value.setstate(state)
    else:
        value.bit_generator.state = state


def check_loader(loader):
    """What is known to make a resumed run differ; torchdata's StatefulDataLoader is torch's too."""
    if not isinstance(loader, torch.utils.data.DataLoader):
        return
    if not hasattr(loader, "state_dict"):
        raise TypeError(
            "loader: torch's DataLoader does not know its position; use torchdata's "
            "StatefulDataLoader, or an object of yours with state_dict() and load_state_dict()"
        )
    if loader.generator is None:
        raise ValueError(
            "loader: without generator=torch.Generator() each new iterator draws from torch's "
            "global generator, and a resumed run would draw once more than an undisturbed one"
        )
    sampler = loader.sampler
    shares = loader.num_workers == 0 and getattr(sampler, "generator", None) is loader.generator
    if shares or type(sampler) is torch.utils.data.RandomSampler:
        raise ValueError(
            "loader: its sampler would shuffle the epochs after a resume otherwise than in an "
            "undisturbed run; give it sampler=torchdata.stateful_dataloader.sampler.RandomSampler("
            "dataset, generator=torch.Generator()), with a generator that the loader does not have"
        )
