"""A small pipeline output: directories written by the code of the stages.

The weights of the classifiers are set to give known predictions. A text is one repeated letter, its label is the index
of the letter in the alphabet modulo 3, and a classifier that knows k letters is correct on the first k of the 26.
"""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from components.core.artifacts import writing
from components.data.segmenters import Segmentation
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.data.tasks.results import KIND as FINETUNED
from components.data.tasks.results import RunResult, write_results
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.prediction import Classifier
from components.learners.task_models.classifier import TextClassifier, load_classifier
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.models.encoder import KIND as ENCODER
from components.models.encoder import build_model, save_encoder
from components.registry.champion import load_champion
from components.registry.contest import PromoteJob, promote
from components.registry.register import RegisterJob, register
from components.registry.tracking import Registry, connect
from components.settings.finetune import FinetuneSettings
from components.settings.registry import PromotionRule, RegistrySettings
from components.settings.section import Start
from components.settings.systems import System
from components.settings.tasks import TaskSource
from components.settings.training import Training
from components.tokenization.char import CharTokenizer
from components.tokenization.special import SPECIAL_PIECES
from tests.example_task import save_classifier

LETTERS = string.ascii_lowercase
LABELS = ["x", "y", "z"]
PIECES = [*SPECIAL_PIECES, *LETTERS]
SETTINGS = FinetuneSettings(
    layers="first", pooling="max", head_norm="none", head_dropout=0.0, training=Training(rate=0.1, batch_size=4)
)
RULE = PromotionRule(metric="accuracy", slice_rows=20, largest_slice_loss=1.0, latency_ms=10_000)


@dataclass
class Pipeline:
    """A run's directories below `root`."""

    root: Path

    @property
    def out(self) -> Path:
        return self.root / "artifacts"

    @property
    def settings(self) -> RegistrySettings:
        return RegistrySettings(tracking=f"sqlite:///{self.root}/mlflow.db")

    def register_job(self, **changes: object) -> RegisterJob:
        job = RegisterJob(
            registry=self.settings,
            out=self.out,
            families=["ulmfit"],
            tasks=["letters"],
            starts=["scratch", "pretrained", "adapted"],
            parameters={"pretrain": {"ulmfit": {"training": {"rate": 0.1, "betas": [0.9, 0.99]}, "preset": None}}},
            metric="accuracy",
            project=self.root,
            systems={},
        ).model_copy(update=changes)
        systems = [System.named(name) for name in [*(f"ulmfit-{start}" for start in job.starts), *job.students]]
        return job.model_copy(update={"systems": dict.fromkeys(job.tasks, systems)})

    def promote_job(self, **rule: object) -> PromoteJob:
        return PromoteJob(
            registry=self.settings,
            rule=RULE.model_copy(update=rule),
            examples={"letters": self.out / "examples" / "letters"},
            out=self.out,
        )

    @property
    def registry(self) -> Registry:
        return connect(self.settings)

    def champion(self) -> Classifier:
        return load_champion(self.settings, "letters")

    def registered(self, **changes: object) -> dict:
        """What the stage `register` writes."""
        return dict(json.loads(register(self.register_job(**changes)).read_text()))

    def promoted(self, **rule: object) -> dict:
        """What the stage `promote` writes."""
        return dict(json.loads(promote(self.promote_job(**rule)).read_text()))

    def write_encoder(self, start: Start, *, seed: int) -> None:
        tokenizer = self.root / "tokenizer"
        CharTokenizer(PIECES, segmentation=Segmentation("none")).save(tokenizer)
        torch.manual_seed(seed)
        model = build_model("ulmfit", vocabulary=len(PIECES), settings={"embedding": 4, "hidden": 4, "layers": 1})
        with writing(self.out / "encoder" / "ulmfit" / start, kind=ENCODER) as draft:
            save_encoder(draft.path, family="ulmfit", model=model, tokenizer=tokenizer)
            (draft.path / "metrics.json").write_text(json.dumps({"perplexity": 3.5, "heldout": {"loss": 1.25}}))
            (draft.path / "curve.csv").write_text("step,loss,heldout\n10,2.5,\n20,1.5,1.75\n")
            draft.facts["trained"] = True

    def write_examples(
        self, *, rows: int = 260, group: str | None = None, budgets: Sequence[int | Literal["all"]] = (5,)
    ) -> None:
        """Letters in alphabetical order; the first 13 are in the slice `early`, the others in `late`. The column
        `letter` can be named as the clusters."""
        folder = self.root / "letters"
        folder.mkdir(exist_ok=True)
        for split in ("train", "dev", "test"):
            lines = [
                {
                    "text": LETTERS[row % 26] * (1 + row // 26),
                    "label": LABELS[row % 26 % 3],
                    "part": "early" if row % 26 < 13 else "late",
                    "letter": LETTERS[row % 26],
                }
                for row in range(rows)
            ]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        keys = {"slice": "part", "group": group, "overlap": "report", "selection": "dev"}
        source = TaskSource.model_validate({"path": str(folder), "budgets": list(budgets), **keys})
        examples(ExamplesJob(task="letters", source=source, output=self.out / "examples" / "letters"))

    def write_classifier(self, start: Start, *, knows: int) -> None:
        model = build_model("ulmfit", vocabulary=len(PIECES), settings={"embedding": 31, "hidden": 4, "layers": 1})
        classifier = TaskModel(model, task=find_task("classification"), settings=SETTINGS, labels=LABELS)
        state = {name: torch.zeros_like(value) for name, value in classifier.state_dict().items()}
        state["encoder.embedding"] = torch.eye(len(PIECES))
        for index, piece in enumerate(range(len(SPECIAL_PIECES), len(PIECES))):
            state["head.output.weight"][(index if index < knows else index + 1) % 3, piece] = 4.0
        classifier.load_state_dict(state)
        system = f"ulmfit-{start}"
        with writing(self.out / "finetuned" / "letters" / system, kind=FINETUNED) as draft:
            save_classifier(
                draft.path / "classifier",
                classifier,
                family="ulmfit",
                tokenizer=self.root / "tokenizer",
                facts={"budget": 20, "seeds": [0, 1]},
            )
            served = load_classifier(draft.path / "classifier")
            splits = {name: read_split(self.out / "examples" / "letters", name) for name in ("dev", "test")}
            probabilities = {name: np.stack(served.answer(split.fields)) for name, split in splits.items()}
            guesses = {name: np.roll(values, 1, axis=1) for name, values in probabilities.items()}  # all wrong
            results = []
            for budget, seed, actual in ((5, 0, guesses), (20, 0, probabilities), (20, 1, probabilities)):
                right = float((actual["dev"].argmax(1) == splits["dev"].labels).mean())
                curve = [{"macro_f1": 0.0, "accuracy": 1.0}, {"macro_f1": right, "accuracy": right}]
                record = {"budget": budget, "seed": seed, "score": "macro_f1", "curve": curve, "seconds": 1.0}
                results.append(RunResult(system, "ulmfit", start, record, actual))
            write_results(draft.path, results, splits=splits, labels=LABELS)
            draft.facts["examples"] = read_facts(self.out / "examples" / "letters").digests
        evaluation = self.out / "evaluation" / "letters"
        evaluation.mkdir(parents=True, exist_ok=True)
        artifact = {"labels": 40, "selection": 0.5, "scores": {"accuracy": {"mean": 0.625, "low": 0.5, "high": 0.7}}}
        entry = {"system": system, "family": "ulmfit", "start": start, "artifact": artifact}
        content = {"main": "accuracy", "titles": {"accuracy": "accuracy"}, "rows": {"test": 26}, "confidence": 0.95}
        (evaluation / "evaluation.json").write_text(json.dumps(content | {"systems": [entry], "transfer": {}}))

    def write_baselines(self, **knows: int) -> None:
        """Baselines that are correct on as many letters as given with seed 0, and on one more with seed 1."""
        splits = {name: read_split(self.out / "examples" / "letters", name) for name in ("dev", "test")}
        results = []
        for system, letters in knows.items():
            for budget, seed in ((5, 0), (20, 0), (20, 1)):
                answers = {}
                for name, split in splits.items():
                    expected = np.arange(len(split)) % 26 < letters + seed
                    guesses = np.where(expected, split.labels, (split.labels + 1) % 3)
                    answers[name] = np.eye(3, dtype=np.float32)[guesses]
                record = {"budget": budget, "seed": seed, "score": "macro_f1", "curve": [{"macro_f1": seed}]}
                results.append(RunResult(system, "baseline", "none", record | {"seconds": 1.0}, answers))
        with writing(self.out / "finetuned" / "letters" / "baselines", kind=FINETUNED) as draft:
            write_results(draft.path, results, splits=splits, labels=LABELS)
            draft.facts["examples"] = read_facts(self.out / "examples" / "letters").digests

    def write_words(self) -> Path:
        """With all labels a words model knows the 26 letters. Returns the folder of the baselines."""
        self.write_examples(budgets=["all"])
        out = self.out / "finetuned" / "letters" / "baselines"
        return baseline(BaselineJob(examples=self.out / "examples" / "letters", output=out))

    def classifier(self, start: Start) -> TextClassifier:
        return load_classifier(self.out / "finetuned" / "letters" / f"ulmfit-{start}" / "classifier")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, created once because the migrations take seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    connect(RegistrySettings(tracking=f"sqlite:///{path}")).versions("any")
    return path


@pytest.fixture
def registry(empty_database: Path, tmp_path: Path) -> Registry:
    """A registry without models."""
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    return connect(RegistrySettings(tracking=f"sqlite:///{tmp_path}/mlflow.db"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """The output of a run; the adapted classifier is the best."""
    made = Pipeline(tmp_path_factory.mktemp("finished"))
    shutil.copyfile(empty_database, made.root / "mlflow.db")
    made.write_examples()
    made.write_encoder("pretrained", seed=1)
    made.write_encoder("adapted", seed=2)
    made.write_classifier("scratch", knows=14)
    made.write_classifier("pretrained", knows=18)
    made.write_classifier("adapted", knows=22)
    return made.root


@pytest.fixture
def pipeline(finished: Path, tmp_path: Path) -> Pipeline:
    """A copy of `finished` for one test."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return Pipeline(tmp_path)
