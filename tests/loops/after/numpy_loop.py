"""numpy alone: a line through points by gradient descent."""

import numpy as np
from albor_core import track

rng = np.random.default_rng(0)
x = rng.normal(size=200)
y = 2.0 * x - 1.0 + 0.1 * rng.normal(size=200)
slope, offset, rate = 0.0, 0.0, 0.1
run = track.start("loops", config={"rate": rate})

for step in range(1, 61):
    error = slope * x + offset - y
    mse = float(np.mean(error**2))
    slope -= rate * 2 * float(np.mean(error * x))
    offset -= rate * 2 * float(np.mean(error))
    run.log({"mse": mse, "slope": slope}, step)
    if step % 10 == 0:
        print(f"step {step} mse {mse:.5f} slope {slope:.3f} offset {offset:.3f}")
