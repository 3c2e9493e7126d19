"""Record tiny registered models of the present schema: `python -m tests.compatibility.record`.

`models/NAME-SCHEMA/bundle` is the bundle of a registered model, `expected.json` beside it holds texts and the answers
that were computed when it was recorded. Models of earlier schemas stay as they are while present code reads them.
Existing models are not replaced. No test writes these files.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import torch

from components.core.artifacts import SCHEMA
from components.data.segmenters import Segmentation
from components.learners.loading import load_model
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.words.classifier import WordsModel
from components.learners.words.features import WordFeatures
from components.learners.words.linear import fit_labels, spanned
from components.models.encoder import build_model
from components.registry.register import write_bundle
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.wordpiece import WordPieceTokenizer
from tests.example_task import save_classifier, save_words

MODELS: Final = Path(__file__).parent / "models"
EXPECTED: Final = "expected.json"
TEXTS: Final = ["the red apple", "old iron is here", "a small horse", "unknown", "apple iron horse"]
LABELS: Final = ["fruit", "metal", "animal"]
TRAIN: Final = [
    ("red apple", 0),
    ("a pear", 0),
    ("old iron", 1),
    ("zinc is here", 1),
    ("small horse", 2),
    ("a goat", 2),
]


def write_words(directory: Path) -> None:
    """A TF-IDF model of six texts."""
    rows, given = [(text,) for text, _ in TRAIN], np.eye(len(LABELS))[[label for _, label in TRAIN]]
    features = WordFeatures.fit(rows)
    model = WordsModel(features, fit_labels(spanned(features.matrix(rows)), given, c=10.0, exclusive=True))
    save_words(directory, models=[model], kind="classification", labels=LABELS, facts={})


def write_encoder(directory: Path) -> None:
    """A Transformer with random weights and its head."""
    words = sorted({word for text in [*TEXTS, *(text for text, _ in TRAIN)] for word in text.split()} - {"unknown"})
    tokenizer = WordPieceTokenizer(
        [*SPECIAL_PIECES, *words], segmentation=Segmentation("none"), lowercase=True, strip_accents=True
    )
    settings = FinetuneSettings(max_length=16, training=Training(rate=0.1, batch_size=4))
    torch.manual_seed(1)
    sizes = {"width": 4, "heads": 2, "layers": 1, "positions": 16}
    encoder = build_model("bert", vocabulary=tokenizer.vocab_size, settings=sizes)
    model = TaskModel(encoder, task=find_task("classification"), settings=settings, labels=LABELS)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0, 0.3 if weights.dim() == 1 else 1.0)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer")
        save_classifier(directory, model, family="bert", tokenizer=Path(folder) / "tokenizer", facts={})


def main() -> None:
    """Write the models that do not exist."""
    for name, write in (("words", write_words), ("encoder", write_encoder)):
        target = MODELS / f"{name}-{SCHEMA}"
        if target.exists():
            print(f"{target}: exists")
            continue
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "model")
            bundle = write_bundle(Path(folder) / "model", target / "bundle", kind="classifier")
        answers = [answer.tolist() for answer in load_model(bundle).answer([(text,) for text in TEXTS])]
        (target / EXPECTED).write_text(json.dumps({"texts": TEXTS, "answers": answers}, indent=1) + "\n")
        print(target)


if __name__ == "__main__":
    main()
