# %% [markdown]
# # Tagging
#
# People and places in sentences, from spans that were marked in an annotation tool. The file is what doccano exports;
# Label Studio, Prodigy and Hugging Face data sets are read in the same way (`docs/tasks.md`).

# %%
import itertools
import json
import os
import random
import tempfile
from pathlib import Path

import yaml

from components.data.formats.annotations import CharSpan, PredictedRow, write_annotated
from components.data.formats.words import spans_of, words_of
from components.pipeline.running import run_stage
from components.settings.loading import load_params
from headstart import load

folder = Path(tempfile.mkdtemp(prefix="tagging-"))
os.chdir(folder)
chance = random.Random(0)
PEOPLE, PLACES = ["Ada Lovelace", "Alan Turing", "Grace Hopper"], ["Paris", "New York", "Bonn"]


def marked(person: str, verb: str, place: str) -> dict[str, object]:
    """A sentence with its spans: [start, end, label] in characters."""
    text = f"{person} {verb} {place}."
    start = text.index(place)
    return {"text": text, "label": [[0, len(person), "PERSON"], [start, start + len(place), "PLACE"]]}


sentences = [marked(*parts) for parts in itertools.product(PEOPLE, ["went to", "lives in", "likes"], PLACES)]
chance.shuffle(sentences)
Path("data/tasks").mkdir(parents=True)
Path("data/text").mkdir(parents=True)
for split, rows in (("train", sentences[:18]), ("test", sentences[18:])):
    Path(f"data/tasks/{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
texts = "".join(json.dumps({"text": f"{chance.choice(sentences)['text']} {number}"}) + "\n" for number in range(300))
Path("data/text/a.jsonl").write_text(texts)

# %% [markdown]
# Spans of characters become tags of words. The format is recognised by its content.

# %%
settings = {
    "run": {"families": ["ulmfit"], "seed": 0, "tasks": ["names"]},
    "cluster": {"launcher": "local"},
    "data": {
        "general": {"path": "data/text", "text": "text"},
        "domain": {"path": "data/text", "text": "text"},
        "tasks": {
            "names": {
                "path": "data/tasks",
                "kind": "tagging",
                "dev": None,
                "budgets": ["all"],
                "seeds": [0],
                "folds": 2,
            }
        },
    },
    "finetune": {"ulmfit": {"words": "none", "epochs": 20, "training": {"rate": 0.01, "batch_size": 4}}},
    "tokenizer": {"wordpiece": {"vocabulary": 120}},
    "pretrain": {
        "ulmfit": {
            "model": {"embedding": 16, "hidden": 24, "layers": 1},
            "tokenizer": "wordpiece",
            "training": {"tokens": 4000, "batch_size": 8, "window": 16, "rate": 0.02},
        }
    },
}
Path("params.yaml").write_text(yaml.safe_dump(settings))
params = load_params(Path("params.yaml"))
run_stage("examples", params, item="names")
print(json.loads(Path("artifacts/examples/names/labels.json").read_text()))

# %% [markdown]
# A tagger needs a language model. This one is tiny, learns the same text, and is fine-tuned on the labelled sentences;
# a published encoder is a better choice (`docs/families.md`). The metrics have the F1 of the spans in cross-validation.

# %%
for stage, item in (("ingest", "general"), ("tokenizer", "general-wordpiece"), ("tokenize", "general-wordpiece")):
    run_stage(stage, params, item=item)
run_stage("pretrain", params, item="ulmfit")
written = run_stage("finetune", params, item="names-ulmfit-pretrained")
print((written / "metrics.json").read_text())
model = load(written / "classifier")

# %% [markdown]
# Predictions in doccano's form, for a person to correct; [0, 12, "PERSON"] are the first twelve characters.
# `headstart predict FILE OUTPUT --format doccano` does the same with the champion of a task.

# %%
text = "Grace Hopper lives in New York."
bounds = words_of(text)
answer = model.predict([[text[start:end] for start, end in bounds]]).iloc[0]
spans = [(span["start"], span["end"], span["type"]) for span in answer["spans"]]
row = PredictedRow({}, text, spans=[CharSpan(*span) for span in spans_of(bounds, spans)], tokens=bounds)
write_annotated(Path("to-correct.jsonl"), [row], form="doccano", model="names")
print(Path("to-correct.jsonl").read_text())
