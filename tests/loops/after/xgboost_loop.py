"""XGBoost: boosted trees on a noisy wave, after the library's walk through evaluation sets."""

import numpy as np
import xgboost as xgb
from albor_core.integrations.xgboost import XGBoostCallback

rng = np.random.default_rng(0)
x = rng.uniform(-3, 3, (600, 2))
y = np.sin(x[:, 0]) * x[:, 1] + 0.1 * rng.normal(size=600)
train, test = xgb.DMatrix(x[:400], y[:400]), xgb.DMatrix(x[400:], y[400:])

params = {"objective": "reg:squarederror", "max_depth": 3, "eta": 0.3, "nthread": 1}
history = {}
xgb.train(
    params,
    train,
    num_boost_round=25,
    evals=[(train, "train"), (test, "test")],
    evals_result=history,
    verbose_eval=False,
    callbacks=[XGBoostCallback("loops", config=params)],
)
for round_, rmse in enumerate(history["test"]["rmse"]):
    print(f"round {round_} test rmse {rmse:.4f}")
