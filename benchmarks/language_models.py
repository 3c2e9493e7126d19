"""Recipes of language models at equal numbers of tokens: held-out loss, probe of the frozen encoder, processor time.

    python benchmarks/language_models.py PARAMS TASK --corpus general --block gpt --tokens 1000000 \
        --recipe base --recipe 'decay 0.8, dropout' training.weight_decay=0.8 model.dropout=0.1

PARAMS is a settings file whose stages `examples` and `tokenize` are complete. Every recipe changes the keys
`training.*` and `model.*` of the block and is trained with one thread, in a process of its own. The probe is a logistic
regression on the mean states of all layers, after LABELS labels a class, scored on dev; the best of four penalties.
p values are those of paired differences from the first recipe, by seed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record
from components.data.scoring.intervals import CONFIDENCE, interval

#: Labels per class of the probe, rows of dev and held-out pieces at most.
LABELS: Final = 20
MOST: Final = 1500
PIECES: Final = 65_536
COLUMNS: Final = {
    "loss": ("held-out loss", ".3f"),
    "probe": ("macro F1 of the probe", ".3f"),
    "seconds": ("processor seconds", ".0f"),
    "passes": ("passes over the text", ".1f"),
}


def train(job: Mapping[str, Any]) -> dict[str, float]:
    """Train a recipe with one seed, and measure it."""
    import torch

    torch.set_num_threads(1)
    from components.cluster.distributed import World
    from components.models.encoder import Encoder
    from components.pipeline.stages import STAGES
    from components.settings.cluster import ClusterSettings
    from components.settings.loading import load_params
    from components.tokenization import load_tokenizer
    from components.tokenization.store import TokenStore
    from components.training.pretraining.language_model import LanguageModelRun
    from components.training.pretraining.launch import train_encoder
    from components.training.pretraining.perplexity import heldout_sampler, measure

    params = load_params(Path(job["params"]))
    pretraining = STAGES["pretrain"].items(params)[job["block"]]
    texts = pretraining if job["corpus"] == "general" else STAGES["adapt"].items(params)[job["block"]]
    changes: dict[str, dict[str, Any]] = {"training": {}, "model": {}}
    for change in job["changes"]:
        key, _, value = change.partition("=")
        section, _, name = key.partition(".")
        changes[section][name] = yaml.safe_load(value)
    budget = {"tokens": job["tokens"], "seconds": None, "passes": None}
    training = pretraining["training"].model_dump() | budget | changes["training"]
    run = LanguageModelRun(
        name=f"{job['corpus']} {job['block']} {job['recipe']} {job['seed']}",
        family=pretraining["family"],
        preset=pretraining["preset"],
        model=pretraining["model"] | changes["model"],
        tokens=texts["tokens"].absolute(),
        tokenizer=texts["tokenizer"].absolute(),
        training=type(pretraining["training"]).model_validate(training),
        seed=job["seed"],
    )
    with tempfile.TemporaryDirectory() as storage:
        began = time.process_time()
        trained = train_encoder(run, settings=ClusterSettings(launcher="local", workers=1, storage=storage))
        seconds = time.process_time() - began
    model, store, tokenizer = trained.model, TokenStore(run.tokens, "heldout"), load_tokenizer(run.tokenizer)
    sampler = heldout_sampler(
        run.family,
        store,
        config=model.config,
        pieces=tokenizer.pieces,
        batch_size=32,
        window=run.training.window,
        workers=1,
    )
    options: dict[str, Any] = {"pieces": PIECES, "precision": trained.precision, "world": World()}
    loss = measure(model, sampler, store, family=run.family, **options).loss
    encoder = Encoder(run.family, model, tokenizer)
    return {
        "loss": loss,
        "probe": probe(encoder, params, job),
        "seconds": seconds,
        "passes": trained.history.tokens / run.text().tokens,
    }


def probe(encoder: Any, params: Any, job: Mapping[str, Any]) -> float:
    """Macro F1 on dev of a regression on the frozen encoder."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from components.data.tasks.budgets import sample_rows
    from components.data.tasks.examples import strata_of
    from components.studies.frame import Outputs

    facts, train, dev = Outputs(params).examples(job["task"], "train", "dev")
    chosen, _ = sample_rows(strata_of(train, facts.kind), LABELS, seed=job["seed"])
    sample, settings = train.take(chosen), params.finetune[job["block"]]
    dev = dev.take(np.arange(min(len(dev), MOST)))
    x, x_dev = (vectors(encoder, split, kind=facts.kind, settings=settings) for split in (sample, dev))
    models = (make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=100)) for c in (0.001, 0.01, 0.1, 1.0))
    answers = (model.fit(x, np.concatenate(sample.targets)).predict(x_dev) for model in models)
    return max(float(f1_score(np.concatenate(dev.targets), of, average="macro")) for of in answers)


def vectors(encoder: Any, split: Any, *, kind: str, settings: Any) -> Any:
    """Features of the embedding and of all layers: means of the hidden states of a text, over its sequences."""
    from components.learners.task_models.kinds import find_task
    from components.learners.task_models.model import TaskModel
    from components.learners.task_models.predictor import Predictor

    read = settings.model_copy(update={"method": "features", "layers": "all", "pooling": "mean"})
    model = TaskModel(encoder.model, task=find_task(kind), settings=read, labels=["no", "yes"]).eval()
    rows = [row.vectors for row in Predictor(model).read(model.encode(split.fields, encoder.tokenizer))]
    return np.concatenate([np.concatenate(row) if model.of_units else np.mean(row, 0, keepdims=True) for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("params", type=Path)
    parser.add_argument("task")
    parser.add_argument("--corpus", choices=("general", "domain"), default="general")
    parser.add_argument("--block", required=True)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--recipe", nargs="+", action="append", required=True, metavar=("NAME", "KEY=VALUE"))
    add_record_option(parser)
    arguments = parser.parse_args()
    shared = {key: str(getattr(arguments, key)) for key in ("params", "task", "corpus", "block")}
    jobs = [
        shared | {"recipe": recipe, "changes": changes, "seed": seed, "tokens": arguments.tokens}
        for recipe, *changes in arguments.recipe
        for seed in range(arguments.seeds)
    ]
    with ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(train, jobs))
    values = {
        recipe: {
            key: [of[key] for job, of in zip(jobs, results, strict=True) if job["recipe"] == recipe] for key in COLUMNS
        }
        for recipe, *_ in arguments.recipe
    }
    first = next(iter(values.values()))
    for recipe, of in values.items():
        cells = {key: f"{np.mean(numbers):.4g}" for key, numbers in of.items()}
        changes = {key: np.subtract(of[key], first[key]) for key in ("loss", "probe")}
        p = {key: float(stats.ttest_1samp(change, 0).pvalue) for key, change in changes.items() if change.any()}
        print(recipe, cells, {key: f"p {value:.3f}" for key, value in p.items()}, flush=True)
    record(
        arguments.record,
        title=f"Language models ({arguments.block}) after {arguments.tokens:,} tokens of {arguments.corpus} text",
        row_title="recipe",
        columns=[Column(name=key, title=title, format=form) for key, (title, form) in COLUMNS.items()],
        values={
            recipe: {
                key: list(interval(np.asarray(numbers), confidence=CONFIDENCE).as_dict().values())
                for key, numbers in of.items()
            }
            for recipe, of in values.items()
        },
        confidence=CONFIDENCE,
        seeds=list(range(arguments.seeds)),
        selection="dev",
    )


if __name__ == "__main__":
    main()
