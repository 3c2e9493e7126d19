"""Classifier directories: the same answers after loading; altered files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.core.artifacts import MANIFEST, digest_file
from components.core.errors import ArtifactError
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import collate
from components.models.encoder import build_model, load_encoder
from components.settings.finetune import FinetuneSettings
from tests.example_task import save_classifier

ROWS = [("the old apple",), ("a very small horse is here",), ("zinc",), ("\u0000\u0001",), ("plum " * 300,)]


@pytest.fixture
def saved(make_encoder, settings: FinetuneSettings, tmp_path: Path) -> Path:
    folder, directory = make_encoder("bert"), tmp_path / "classifier"
    torch.manual_seed(2)
    task, encoder = find_task("classification"), load_encoder(folder).model
    model = TaskModel(encoder, task=task, settings=settings, labels=["no", "yes"]).eval()
    save_classifier(directory, model, family="bert", tokenizer=folder / "tokenizer", facts={"task": "things"})
    return directory


def test_elmos_static_vectors_are_stored_with_the_classifier(make_encoder, settings, tmp_path):
    folder = make_encoder("elmo")
    plain = load_encoder(folder)
    sizes = plain.model.config.model_dump(exclude={"vocabulary"}) | {"static": 3}
    encoder = build_model("elmo", vocabulary=plain.tokenizer.vocab_size, settings=sizes)
    table = encoder.static_vectors()
    assert table is not None
    table.copy_(torch.randn(table.shape))
    encoder.bind(plain.tokenizer)
    changed = settings.model_copy(update={"layers": "mix", "pooling": "concat", "method": "features"})
    model = TaskModel(encoder, task=find_task("classification"), settings=changed, labels=["no", "yes"]).eval()
    save_classifier(
        tmp_path / "stacked", model, family="elmo", tokenizer=folder / "tokenizer", facts={"task": "things"}
    )
    classifier = load_classifier(tmp_path / "stacked")
    batch = collate(classifier.encode(ROWS[:1]))
    with torch.inference_mode():
        expected = model(batch).softmax(1)
        table.zero_()
        without = model(batch).softmax(1)
    np.testing.assert_allclose(classifier.answer(ROWS[:1]), expected, atol=1e-5)
    assert not torch.allclose(expected, without, atol=1e-4)


@pytest.mark.parametrize("name", ["head.safetensors", "encoder/model.safetensors", "labels.json", "config.json"])
def test_an_altered_file_is_refused(name, saved):
    content = bytearray((saved / name).read_bytes())
    content[-3] ^= 1
    (saved / name).write_bytes(bytes(content))
    with pytest.raises(ArtifactError, match=f"{name}: altered since it was written"):
        load_classifier(saved)


def _rewrite(directory: Path, name: str, content: str) -> None:
    """Replace a file, with its digest."""
    path, manifest = directory / name, json.loads((directory / MANIFEST).read_text())
    path.write_text(content)
    manifest["files"][name] |= {"sha256": digest_file(path), "bytes": path.stat().st_size}
    (directory / MANIFEST).write_text(json.dumps(manifest))


def _rewrite_settings(directory: Path, **changes: Any) -> None:
    config = json.loads((directory / "config.json").read_text())
    for section, values in changes.items():
        config["settings"][section] = config["settings"][section] | values if isinstance(values, dict) else values
    _rewrite(directory, "config.json", json.dumps(config | {"head_precision": "float32"}))


def test_a_classifier_of_an_earlier_version_is_loaded(saved):
    before = load_classifier(saved).answer(ROWS)
    _rewrite_settings(saved, contrastive={"label_names": False})
    np.testing.assert_array_equal(load_classifier(saved).answer(ROWS), before)
    _rewrite_settings(saved, reader="cnn")
    with pytest.raises(ArtifactError, match=r"finetune.<name>.reader is 'cnn', which was removed.; fine-tune again"):
        load_classifier(saved)
    _rewrite_settings(saved, reader="none", training={"rate": "warm"})
    with pytest.raises(ArtifactError, match="not a classifier of this version"):
        load_classifier(saved)


def test_a_changed_tokenizer_is_refused_even_if_digests_agree(saved):
    name = "encoder/tokenizer/tokenizer.json"
    _rewrite(saved, name, (saved / name).read_text().replace("apple", "appel"))
    with pytest.raises(ArtifactError, match="tokenizer"):
        load_classifier(saved)


def test_texts_are_truncated_to_the_limit_of_the_encoder(saved):
    classifier = load_classifier(saved)
    assert classifier.settings.max_length == 128, "but the encoder has 24 positions"
    pieces = classifier.encode(ROWS[-1:])[0].pieces[0]
    assert len(pieces) == 24 and pieces[-1] == 3, "the special pieces at the end survive the cut"
