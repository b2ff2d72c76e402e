"""Gymnasium: tabular Q-learning on a frozen lake, after the library's guide to training agents."""

import gymnasium
import numpy as np

rng = np.random.default_rng(0)
env = gymnasium.make("FrozenLake-v1", is_slippery=False)
table = np.zeros((env.observation_space.n, env.action_space.n))
mean = 0.0

for episode in range(1, 201):
    state, _ = env.reset(seed=episode)
    total, is_over = 0.0, False
    while not is_over:
        best = np.flatnonzero(table[state] == table[state].max())
        action = int(rng.integers(4) if rng.random() < 0.2 else rng.choice(best))
        after, reward, terminated, truncated, _ = env.step(action)
        goal = reward + 0.95 * table[after].max() * (not terminated)
        table[state, action] += 0.5 * (goal - table[state, action])
        state, total, is_over = after, total + reward, terminated or truncated
    mean += 0.05 * (total - mean)
    if episode % 20 == 0:
        print(f"episode {episode} mean return {mean:.3f}")
