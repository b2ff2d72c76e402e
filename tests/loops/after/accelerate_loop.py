"""accelerate: a regression, after the library's example of experiment tracking."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from albor_core.integrations.accelerate import AlborTracker

set_seed(0)
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True, log_with=AlborTracker("loops"))
accelerator.init_trackers("loops", config={"lr": 0.05})

inputs = torch.randn(256, 4)
targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]]) + 0.1 * torch.randn(256, 1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(inputs, targets), batch_size=32, shuffle=True
)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

step = 0
for _ in range(5):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        accelerator.log({"loss": loss.item()}, step=step)
    accelerator.print(f"step {step} loss {loss.item():.4f}")
accelerator.end_training()
