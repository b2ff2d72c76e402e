"""An accelerate script in the cockpit: one tracker."""

import torch
from accelerate import Accelerator

from albor_core.integrations.accelerate import AlborTracker

STEPS = 50
accelerator = Accelerator(
    cpu=True, log_with=AlborTracker("examples", "accelerate", max_steps=STEPS)
)
accelerator.init_trackers("examples", config={"lr": 0.1})
layer = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))

for step in range(1, STEPS + 1):
    x = torch.randn(16, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    accelerator.log({"loss": loss}, step=step)
accelerator.end_training()
