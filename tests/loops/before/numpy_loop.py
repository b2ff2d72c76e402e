"""numpy alone: a line through points by gradient descent."""

import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=200)
y = 2.0 * x - 1.0 + 0.1 * rng.normal(size=200)
slope, offset, rate = 0.0, 0.0, 0.1

for step in range(1, 61):
    error = slope * x + offset - y
    mse = float(np.mean(error**2))
    slope -= rate * 2 * float(np.mean(error * x))
    offset -= rate * 2 * float(np.mean(error))
    if step % 10 == 0:
        print(f"step {step} mse {mse:.5f} slope {slope:.3f} offset {offset:.3f}")
