"""Settings of a run and fixtures that write its outputs: corpus, tokens, task, tiny encoders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from components.core.artifacts import writing
from components.data.segmenters import Segmentation
from components.data.tasks.examples import ExamplesJob, examples
from components.models.encoder import build_model, save_encoder
from components.reporting.findings import Findings
from components.settings.loading import load_params
from components.settings.tasks import TaskSource
from components.studies.command import STUDIES
from components.studies.frame import Outputs, find
from components.studies.lectures import read_claims
from components.tokenization import load_tokenizer
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.tokenize import TokenizeJob, tokenize
from components.tokenization.word import WordTokenizer
from tests.tokenization.conftest import WriteCorpus, write_corpus  # noqa: F401

ROOT = Path(__file__).parents[2]
CLAIMS = read_claims(ROOT)
#: Block of `pretrain`, named like its family -> sizes.
SIZES: dict[str, dict[str, Any]] = {
    "ulmfit": {"embedding": 8, "hidden": 8, "layers": 2},
    "bert": {"width": 16, "layers": 3, "heads": 2, "positions": 32},
    "gpt": {"width": 16, "layers": 2, "heads": 2, "positions": 8},
    "transformer-xl": {"width": 16, "layers": 2, "heads": 2, "memory": 8},
    "word2vec": {"width": 8},
}
#: Class -> words that determine it, and words that do not.
WORDS = {"fruit": ["apple", "pear", "plum"], "metal": ["iron", "zinc", "gold"]}
FILLER = ["the", "a", "red", "old", "is", "here", "there", "small", "large", "very", "bank", "river", "money"]
WriteEvaluation = Callable[..., None]


def findings(outputs: Outputs, name: str, **options: Any) -> Findings:
    """What a study finds, as its command does."""
    return find(STUDIES[name], outputs, **options)


def fits(actual: Findings, study: str) -> None:
    """The rules of all claims that the study measures read columns of its tables."""
    rules = [(name, rule) for name, claim in CLAIMS.items() if claim.study == study for rule in claim.rules]
    assert rules
    for name, rule in rules:
        for cells in (rule, rule.minus or rule):
            table, columns = cells.table or rule.table, {cells.column or rule.column, *cells.where}
            fitting = [of for of in actual.chapter.tables if table in of.title and columns <= set(of.columns)]
            assert fitting, (name, columns, [(of.title, of.columns) for of in actual.chapter.tables])


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def params_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped settings with a block for each entry of `SIZES` and outputs below `tmp_path/out`."""
    monkeypatch.chdir(tmp_path)
    settings = yaml.safe_load((ROOT / "params.yaml").read_text())
    settings["run"] |= {"out": "out", "starts": ["scratch", "vectors", "pretrained", "adapted"]}
    settings["tokenizer"]["kinds"] = ["word"]
    for section in ("pretrain", "adapt", "finetune"):
        shipped = settings[section]["ulmfit"]
        settings[section] = {name: dict(shipped) for name in SIZES}
    for name, sizes in SIZES.items():
        settings["pretrain"][name] |= {"tokenizer": "word", "model": sizes}
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture
def outputs(params_file: Path) -> Outputs:
    return Outputs(load_params(params_file))


@pytest.fixture
def tokenizer_directory(tmp_path: Path) -> Path:
    words = [*FILLER, *(word for group in WORDS.values() for word in group)]
    tokenizer = WordTokenizer(
        [*SPECIAL_PIECES, *words], segmentation=Segmentation("none"), lowercase=True, strip_accents=True
    )
    tokenizer.save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.fixture
def add_encoder(outputs: Outputs, tokenizer_directory: Path) -> Callable[..., torch.nn.Module]:
    """`add_encoder("bert", "adapted")` writes an encoder with random weights as an output of the run."""

    def add(name: str, start: str = "adapted", *, seed: int = 0) -> torch.nn.Module:
        torch.manual_seed(seed)
        vocabulary = load_tokenizer(tokenizer_directory).vocab_size
        model = build_model(name, vocabulary=vocabulary, settings=SIZES[name])
        with writing(outputs.out / "encoder" / name / start, kind="encoder") as draft:
            save_encoder(draft.path, family=name, model=model, tokenizer=tokenizer_directory)
            draft.facts["trained"] = True
        return model

    return add


@pytest.fixture
def run_with(outputs: Outputs, add_encoder: Callable[..., torch.nn.Module]) -> Callable[..., None]:
    """`run_with("bert", "gpt")` writes adapted encoders of a run with these families."""

    def add(*names: str) -> None:
        for name in names:
            add_encoder(name)
        outputs.params.run.__dict__["families"] = list(names)

    return add


@pytest.fixture
def add_corpus(outputs: Outputs, write_corpus: WriteCorpus) -> Callable[..., None]:  # noqa: F811
    """`add_corpus("domain", ["A text.", ...])` writes an output of the stage `ingest`."""

    def add(name: str, texts: Sequence[str], heldout: Sequence[str] = ()) -> None:
        write_corpus(outputs.out / "corpus" / name, train=[texts], heldout=[heldout] * bool(heldout))

    return add


@pytest.fixture
def add_tokens(outputs: Outputs, tokenizer_directory: Path, write_corpus: WriteCorpus) -> Callable[..., None]:  # noqa: F811
    """`add_tokens("domain-word", ["A text.", ...])` writes held-out tokens with the stage `tokenize`, and those of
    `train`."""

    def add(name: str, texts: Sequence[str], train: Sequence[str] = ()) -> None:
        read = write_corpus(outputs.out / "texts" / name, train=[train] * bool(train), heldout=[texts])
        tokenize(TokenizeJob(corpus=read, tokenizer=tokenizer_directory, output=outputs.out / "tokens" / name))

    return add


@pytest.fixture
def write_task(outputs: Outputs, tmp_path: Path) -> Callable[..., Path]:
    """`write_task("aws-type", rows)` writes a task with these rows in every split with the stage `examples`; a list of
    three has those of train, dev and test."""

    def write(name: str, rows: Sequence[Any], **settings: Any) -> Path:
        splits = rows if isinstance(rows[0], list) else [rows] * 3
        for split, of in zip(("train", "dev", "test"), splits, strict=True):
            (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in of))
        source = TaskSource(path=str(tmp_path), overlap="report", **{"budgets": [5], "seeds": [0]} | settings)
        return examples(ExamplesJob(task=name, source=source, output=outputs.out / "examples" / name))

    return write


@pytest.fixture
def add_task(write_task: Callable[..., Path]) -> Callable[..., Path]:
    """`add_task("aws-type")` writes a task with two classes, determined by a word."""

    def add(name: str = "aws-type", **settings: Any) -> Path:
        splits = [
            [
                {
                    "text": f"the {FILLER[n % 10]} {words[n % 3]} is {FILLER[(n + 3 + number) % 13]} {FILLER[n // 10]}",
                    "label": label,
                }
                for n in range(30)
                for label, words in WORDS.items()
            ]
            for number in range(3)
        ]
        return write_task(name, splits, **{"budgets": [2, 5], "seeds": [0, 1, 2]} | settings)

    return add


@pytest.fixture
def write_evaluation(outputs: Outputs) -> WriteEvaluation:
    """`write_evaluation("aws-type", {...})` writes an output of the stage `evaluate`."""

    def write(task: str, content: dict[str, Any]) -> None:
        with writing(outputs.out / "evaluation" / task, kind="evaluation") as draft:
            (draft.path / "evaluation.json").write_text(json.dumps(content))

    return write
