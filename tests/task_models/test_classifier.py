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

TEXTS = ["the old apple", "a very small horse is here", "zinc", "\u0000\u0001", "plum " * 300]


@pytest.fixture
def saved(make_encoder, settings: FinetuneSettings, tmp_path: Path) -> tuple[Path, TaskModel]:
    encoder = make_encoder("bert")
    torch.manual_seed(2)
    task = find_task("classification")
    model = TaskModel(load_encoder(encoder).model, task=task, settings=settings, labels=["no", "yes"]).eval()
    directory = tmp_path / "classifier"
    save_classifier(directory, model, family="bert", tokenizer=encoder / "tokenizer", facts={"task": "things"})
    return directory, model


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
    directory = tmp_path / "stacked"
    save_classifier(directory, model, family="elmo", tokenizer=folder / "tokenizer", facts={"task": "things"})
    classifier = load_classifier(directory)
    (encoded,) = classifier.encode([(TEXTS[0],)])
    with torch.inference_mode():
        expected = model(collate([encoded])).softmax(1)
        table.zero_()
        without = model(collate([encoded])).softmax(1)
    np.testing.assert_allclose(classifier.predict(TEXTS[:1]), expected, atol=1e-5)
    assert not torch.allclose(expected, without, atol=1e-4)


@pytest.mark.parametrize("name", ["head.safetensors", "encoder/model.safetensors", "labels.json", "config.json"])
def test_an_altered_file_is_refused(name, saved):
    path = saved[0] / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ArtifactError, match=f"{name}: altered since it was written"):
        load_classifier(saved[0])


def _rewrite_settings(directory: Path, **changes: Any) -> None:
    """Change stored settings, with the digest of their file."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    for section, values in changes.items():
        config["settings"][section] = config["settings"][section] | values if isinstance(values, dict) else values
    path.write_text(json.dumps(config))
    manifest = json.loads((directory / MANIFEST).read_text())
    manifest["files"]["config.json"] |= {"sha256": digest_file(path), "bytes": path.stat().st_size}
    (directory / MANIFEST).write_text(json.dumps(manifest))


def test_a_classifier_of_an_earlier_version_is_loaded(saved):
    before = load_classifier(saved[0]).predict(TEXTS)
    _rewrite_settings(saved[0], contrastive={"label_names": False})
    np.testing.assert_array_equal(load_classifier(saved[0]).predict(TEXTS), before)
    _rewrite_settings(saved[0], reader="cnn")
    with pytest.raises(ArtifactError, match=r"finetune.<name>.reader is 'cnn', which was removed.; fine-tune again"):
        load_classifier(saved[0])
    _rewrite_settings(saved[0], reader="none", training={"rate": "warm"})
    with pytest.raises(ArtifactError, match="not a classifier of this version"):
        load_classifier(saved[0])


def test_a_changed_tokenizer_is_refused_even_if_digests_agree(saved):
    directory = saved[0]
    path = directory / "encoder" / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text().replace("apple", "appel"))
    manifest = json.loads((directory / MANIFEST).read_text())
    manifest["files"]["encoder/tokenizer/tokenizer.json"]["sha256"] = digest_file(path)
    (directory / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match="tokenizer"):
        load_classifier(directory)


def test_texts_are_truncated_to_the_limit_of_the_encoder(saved):
    classifier = load_classifier(saved[0])
    assert classifier.settings.max_length == 128, "but the encoder has 24 positions"
    encoded = classifier.encode([("plum " * 300,)])
    pieces = encoded[0].pieces[0]
    assert len(pieces) == 24 and pieces[-1] == 3, "the special pieces at the end survive the cut"
