"""A GPT of 124 M parameters: streamed and resident training, bit for bit."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

from sharing import momentd, torch  # noqa: E402

LAYERS, WIDTH, HEADS, VOCABULARY, CONTEXT, BATCH, STEPS = 12, 768, 12, 50257, 128, 4, 200


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        shape = x.shape
        q, k, v = (part.view(shape[0], shape[1], HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.before(x)).chunk(3, -1))
        mask = torch.ones(shape[1], shape[1], device=x.device, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(shape))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.after(x))))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.places = torch.nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = torch.nn.LayerNorm(WIDTH)

    def loss(self, words):
        x = self.norm(self.blocks(self.words(words[:, :-1]) + self.places))
        logits = x @ self.words.weight.T
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


def train(make_optimizer):
    torch.manual_seed(0)
    model = Gpt().cuda()
    optimizer = make_optimizer(model)
    random = torch.Generator(device="cuda").manual_seed(3)
    losses = []
    for _ in range(STEPS):
        words = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=random, device="cuda")
        loss = model.loss(words)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return model, optimizer, torch.stack(losses).cpu()


def test_streamed_and_resident_training_are_equal(tmp_path):
    torch.use_deterministic_algorithms(True)
    options = dict(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    try:
        resident, _, wanted = train(lambda model: torch.optim.AdamW(model.parameters(), **options))
        with momentd.spawn(tmp_path / "state", log=tmp_path / "log",
                           arguments=["--host-memory", "5GiB"]) as daemon:
            streamed, optimizer, losses = train(lambda model: momentd.torch.AdamW(
                model.named_parameters(), job="gpt", socket=daemon.socket, commit_every=0,
                **options))
            print("transport", optimizer.info().transport, optimizer.last_statistics)
            optimizer.close()
    finally:
        torch.use_deterministic_algorithms(False)
    count = sum(p.numel() for p in streamed.parameters())
    different = sum(int((a != b).sum()) for a, b in zip(streamed.parameters(),
                                                       resident.parameters()))
    print(f"{count} parameters, {STEPS} steps: losses equal {torch.equal(losses, wanted)}, "
          f"{different} elements differ; loss {wanted[0]:.4f} to {wanted[-1]:.4f}")
    assert count >= 100_000_000
    assert torch.equal(losses, wanted)
    assert different == 0
