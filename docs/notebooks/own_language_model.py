# %% [markdown]
# # A language model of your own
#
# Pretraining on general text, adaptation to a domain, and a classifier that starts from the result. The texts are
# generated and the model is tiny, so that everything takes seconds; with files of your own, `headstart retrain` runs
# the same stages, keeps them up to date, and compares the result with the same model trained from scratch.

# %%
import json
import os
import random
import tempfile
from pathlib import Path

import yaml

from components.pipeline.running import run_stage
from components.serving.generation import Sampling, try_model
from components.serving.likelihood import measure_file
from components.settings.loading import load_params
from headstart import load

folder = Path(tempfile.mkdtemp(prefix="language-model-"))
os.chdir(folder)
chance = random.Random(0)


def sentence(nouns: list[str], verbs: list[str]) -> str:
    """A sentence of a simple grammar."""
    return f"the {chance.choice(nouns)} {chance.choice(verbs)} the {chance.choice(nouns)} {chance.choice(nouns)} ."


animals, servers = ["cat", "dog", "bird", "fish"], ["cache", "query", "index", "table"]
GENERAL = [sentence(animals, ["sees", "hears", "likes"]) for _ in range(400)]
DOMAIN = [sentence(servers, ["reads", "locks", "drops"]) for _ in range(400)]
for name, texts in (("general", GENERAL), ("domain", DOMAIN)):
    (folder / "data" / name).mkdir(parents=True)
    rows = "".join(json.dumps({"text": f"{text} {number}"}) + "\n" for number, text in enumerate(texts))
    (folder / "data" / name / "texts.jsonl").write_text(rows)
labelled = {
    f"{sentence(servers, [verb])} {number}": label
    for verb, label in (("reads", "safe"), ("drops", "danger"))
    for number in range(24)
}
rows = [json.dumps({"text": text, "label": label}) + "\n" for text, label in labelled.items()]
(folder / "data" / "tasks").mkdir()
(folder / "data" / "tasks" / "train.jsonl").write_text("".join(rows[::2]))
(folder / "data" / "tasks" / "test.jsonl").write_text("".join(rows[1::2]))

# %% [markdown]
# Settings: the family and its size, and the number of tokens that it reads.

# %%
SIZE = {"embedding": 16, "hidden": 24, "layers": 1}
TRAINING = {"tokens": 4000, "batch_size": 8, "window": 16, "rate": 0.02}
settings = {
    "run": {"families": ["ulmfit"], "seed": 0, "tasks": ["safety"]},
    "cluster": {"launcher": "local"},
    "data": {
        "general": {"path": "data/general", "text": "text"},
        "domain": {"path": "data/domain", "text": "text"},
        "tasks": {
            "safety": {"path": "data/tasks", "dev": None, "budgets": ["all"], "seeds": [0], "folds": 2},
        },
    },
    "ingest": {"heldout": 0.1},
    "tokenizer": {"wordpiece": {"vocabulary": 90}},
    "pretrain": {"ulmfit": {"model": SIZE, "tokenizer": "wordpiece", "training": TRAINING}},
    "adapt": {"ulmfit": {"training": TRAINING}},
    "finetune": {"ulmfit": {"words": "none", "epochs": 20, "training": {"rate": 0.003, "batch_size": 4}}},
}
(folder / "params.yaml").write_text(yaml.safe_dump(settings))
params = load_params(Path("params.yaml"))

# %% [markdown]
# Each stage is a function of files. `headstart retrain` runs those that are out of date, in order.

# %%
run_stage("examples", params, item="safety")
stages = [(stage, corpus) for corpus in ("general", "domain") for stage in ("ingest", "tokenizer", "tokenize")]
for stage, corpus in stages:
    run_stage(stage, params, item=corpus if stage == "ingest" else f"{corpus}-wordpiece")
run_stage("pretrain", params, item="ulmfit")
run_stage("adapt", params, item="ulmfit")

# %% [markdown]
# What adaptation is worth: the perplexity of the domain's text before and after it (lower is better). It is large
# before, because the general text has none of the domain's nouns and verbs. Then the adapted model continues a text.

# %%
pretrained, adapted = (Path("artifacts/encoder/ulmfit") / start for start in ("pretrained", "adapted"))
before, after = (measure_file(model, Path("data/domain/texts.jsonl")).per_word for model in (pretrained, adapted))
print(f"perplexity per word: {before:.1f} before adaptation, {after:.1f} after")
_, continued = try_model(adapted, "the cache", length=6, count=2, sampling=Sampling(), seed=0)
for _, text in continued:
    print(text)

# %% [markdown]
# A classifier that starts from it. `fit("data/tasks/train.jsonl", start=adapted)` also tries other ways to learn, and
# compares them with words alone.

# %%
written = run_stage("finetune", params, item="safety-ulmfit-adapted")
model = load(written / "classifier")
predicted = model.predict(["the query drops the table index .", "the cache reads the index table ."])
print(predicted.round(3).to_string())
