"""A trainer with its parameters on the GPU that can be killed at any moment; run by test_deaths.py.

Prints one line an event: `ready <sequence>`, `stepping <sequence>` before a step, `stepped
<sequence>` after it, `rewound <sequence>`, and at the end `final <digest>`. Gradients follow from
the sequence, so two runs of the same steps end with the same bits.
"""

import argparse
import hashlib
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import momentd  # noqa: E402
import momentd.torch  # noqa: E402


def say(*words):
    print(*words, flush=True)


def make_parameters(count):
    generator = torch.Generator(device="cuda").manual_seed(1)
    sizes = [count - count // 3 - 5, count // 3, 5]
    return [
        torch.nn.Parameter(torch.randn(size, generator=generator, device="cuda").bfloat16())
        for size in sizes
    ]


def set_gradients(parameters, sequence):
    generator = torch.Generator(device="cuda").manual_seed(1000 + sequence)
    for parameter in parameters:
        gradient = torch.randn(parameter.shape, generator=generator, device="cuda") * 0.1
        parameter.grad = gradient.to(parameter.dtype)


def digest(parameters):
    result = hashlib.sha256()
    for parameter in parameters:
        data = parameter.detach().contiguous().view(torch.uint8)
        result.update(data.cpu().numpy().tobytes())
    return result.hexdigest()


def sequence_of(blob):
    return int(blob) if blob else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--interval", type=float, default=0, help="seconds between steps")
    arguments = parser.parse_args()
    parameters = make_parameters(arguments.elements)
    optimizer = momentd.torch.AdamW(
        parameters, lr=1e-3, weight_decay=0.1, job=arguments.job, socket=arguments.socket,
        resume="auto", retry_for=120.0)
    sequence = sequence_of(optimizer.resume())
    say("ready", sequence)
    while sequence < arguments.steps:
        set_gradients(parameters, sequence + 1)
        say("stepping", sequence + 1)
        try:
            optimizer.step(blob=str(sequence + 1).encode())
        except momentd.Rewound:
            sequence = sequence_of(optimizer.resume())
            say("rewound", sequence)
            continue
        sequence += 1
        say("stepped", sequence)
        time.sleep(arguments.interval)
    say("final", digest(parameters))
    optimizer.close()


if __name__ == "__main__":
    main()
