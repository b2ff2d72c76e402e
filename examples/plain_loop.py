"""A training loop of your own: watch it with `albor-tui`, compare it with `albor runs diff`."""

import torch

from albor_core import track

LR, STEPS = 0.05, 200
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
truth = torch.randn(8, 1)

with track.start("examples", name="plain-loop", config={"lr": LR}, max_steps=STEPS) as run:
    for step in range(1, STEPS + 1):
        x = torch.randn(32, 8)
        loss = (model(x) - x @ truth).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(
            {"loss": loss, "lr": LR, "error": {"weights": (model.weight.T - truth).norm()}}, step
        )
