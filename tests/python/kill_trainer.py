"""A small training run that can be killed at any moment and started again; run by test_kill.py.

It writes one line a step to its log, `<sequence> <loss in hexadecimal>`, after the step was answered,
`rewound <sequence>` where the daemon had lost an answered step, and at the end `final <digest>`.
"""

import argparse
import hashlib
import pickle

import torch

import momentd
import momentd.torch


def make_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(96, 700),
        torch.nn.GELU(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(700, 300),
        torch.nn.GELU(),
        torch.nn.Linear(300, 17),
    )


def make_optimizer(model, socket, job):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    return momentd.torch.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=1e-3,
        job=job,
        socket=socket,
        module=model,
        resume="auto",
        bucket_elements=60_000,
        retry_for=60.0,
    )


def batch(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(16, 96, generator=generator)
    return inputs, torch.randint(0, 17, (16,), generator=generator)


def restore(blob):
    """The step that the blob was taken in; 0 for a new store."""
    if not blob:
        return 0
    step, random_state = pickle.loads(blob)
    torch.set_rng_state(random_state)
    return step


def train_step(model, optimizer, step):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 / (1 + step / 50)
    inputs, targets = batch(step)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step(blob=pickle.dumps((step, torch.get_rng_state())))
    return loss.item()


def digest(model):
    result = hashlib.sha256()
    for parameter in model.parameters():
        result.update(parameter.detach().numpy().tobytes())
    return result.hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = make_model()
    torch.manual_seed(11)
    optimizer = make_optimizer(model, arguments.socket, arguments.job)
    step = restore(optimizer.resume())
    with open(arguments.log, "a", buffering=1) as log:
        log.write(f"resumed {step}\n")
        while step < arguments.steps:
            try:
                loss = train_step(model, optimizer, step + 1)
            except momentd.Rewound:
                step = restore(optimizer.resume())
                log.write(f"rewound {step}\n")
                continue
            step += 1
            log.write(f"{step} {loss.hex()}\n")
        log.write(f"final {digest(model)}\n")
    optimizer.close()


if __name__ == "__main__":
    main()
