"""PyTorch: a classifier of two interleaved arms, after the quickstart's train and test loops."""

import torch
from albor_core import track
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
turn = torch.rand(512) * 3
side = torch.randint(0, 2, (512,))
angle = turn * 2 + side * torch.pi
points = torch.stack([turn * angle.cos(), turn * angle.sin()], 1) + 0.05 * torch.randn(512, 2)

model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
run = track.start("loops", config={"lr": 0.01}, max_steps=40)

for epoch in range(1, 41):
    order = torch.randperm(512)
    for batch in order.split(64):
        loss = loss_fn(model(points[batch]), side[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    accuracy = (model(points).argmax(1) == side).float().mean()
    run.log({"loss": loss, "accuracy": accuracy}, epoch)
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy.item():.3f}")
