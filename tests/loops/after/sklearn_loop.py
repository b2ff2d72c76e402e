"""scikit-learn: digits in batches by partial_fit, after the example of out-of-core learning."""

import numpy as np
from albor_core import track
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

features, digits = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(features / 16, digits, random_state=0)
model = SGDClassifier(random_state=0)
run = track.start("loops", config=model.get_params())

for batch in range(1, 31):
    chosen = np.arange(batch * 40, batch * 40 + 40) % len(train_x)
    model.partial_fit(train_x[chosen], train_y[chosen], classes=np.arange(10))
    accuracy = model.score(test_x, test_y)
    run.log({"accuracy": accuracy}, batch)
    print(f"batch {batch} accuracy {accuracy:.3f}")
