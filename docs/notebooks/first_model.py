# %% [markdown]
# # A first model
#
# A classifier of support tickets from a few labelled rows, in seconds and without configuration. Replace the table by a
# csv file of your own: `fit("tickets.csv")` finds the columns by itself.

# %%
import random
import tempfile
from pathlib import Path

import pandas as pd
from sklearn.model_selection import cross_val_score

from headstart import HeadstartClassifier, fit, load

PROBLEMS = {
    "billing": ["the invoice is wrong", "i was charged twice", "send the receipt again", "refund my last payment"],
    "login": ["i cannot sign in", "the reset link has expired", "my account is locked", "the code never arrives"],
    "delivery": ["the parcel is late", "the package is broken", "the courier left it outside", "tracking is stuck"],
}


def tickets(rows: int, seed: int) -> pd.DataFrame:
    """Rows of each label."""
    chance = random.Random(seed)
    texts = [
        (f"{chance.choice(['Hi,', 'Hello,'])} {chance.choice(problems)} since {chance.randrange(2, 9)} days", label)
        for label, problems in PROBLEMS.items()
        for _ in range(rows)
    ]
    return pd.DataFrame(texts, columns=["text", "label"])


train, later = tickets(8, seed=0), tickets(10, seed=1)
train.sample(3, random_state=0)

# %% [markdown]
# `fit` tries several systems and chooses among them by cross-validation within the labels; no further labels are
# needed. With `start="all-MiniLM-L6-v2"` (`headstart starts --install all-MiniLM-L6-v2`) it also fine-tunes a published
# encoder.

# %%
model = fit(train, verbose=False)
print(model.report)

# %% [markdown]
# A DataFrame in, a DataFrame out: the label, its probability, and one column of probabilities per label.

# %%
predicted = model.predict(later)
print(predicted.head(3).round(2).to_string())
accuracy = (predicted["label"].to_numpy() == later["label"].to_numpy()).mean()
print(f"accuracy on later tickets: {accuracy:.2f}")

# %% [markdown]
# A saved model gives the same predictions, to the last bit.

# %%
with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "tickets-model")
    again = load(Path(folder) / "tickets-model")
    assert again.predict(later).equals(predicted)

# %% [markdown]
# The same system as a scikit-learn estimator. In `cross_val_score` with two folds it learns from half of the rows, so
# its accuracy is lower than above.

# %%
estimator = HeadstartClassifier(folds=2, verbose=False)
scores = cross_val_score(estimator, train["text"].tolist(), train["label"].tolist(), cv=2)
print("accuracy of each fold, on 12 tickets:", scores.round(2))
