"""Export of trained task models: the same predictions in onnxruntime, transformers and a container."""

import ast
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import pipeline

from components.core.errors import ConfigError
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.heads import Head
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.words.classifier import WordsModel, WordsPart, load_words
from components.learners.words.features import WordFeatures
from components.learners.words.linear import fit_labels, spanned
from components.models.sentence import Dense, Reading
from components.registry.exports.champion import Export, Source, export_classifier
from components.registry.exports.onnx import predict
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from tests.example_task import save_classifier, save_words

ROOT = Path(__file__).parents[3]
LABELS = ["no", "yes", "maybe"]
TEXTS = ["a b c", "d", "dog a b", "z z", "c a b d " * 9]
PAIRS = [("a b", "c"), ("d", "dog"), ("a b c " * 5, "c d")]
TRAINING = Training(rate=0.1, batch_size=1)
LAST = {"layers": "last", "pooling": "summary"}
TRAINED = {"layers": "last", "pooling": "trained"}
FIRST = {"reading": Reading(pooling=("first",), after=("normalize",), prompt="a b")}
DENSE = {"reading": Reading(pooling=("max", "mean"), after=(Dense(inputs=64, outputs=6), "normalize"), prompt="a b")}


Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, random_encoder: Callable[..., Any]) -> Save:
    """`save("bert", "classification", layers="last")`: a task model with random weights."""

    def write(
        family: str, kind: str, *, words: WordsPart | None = None, reading: Reading | None = None, **settings: Any
    ) -> Path:
        encoder, tokenizer = random_encoder(family, **({"reading": reading} if reading else {}))
        chosen = FinetuneSettings(max_length=24, training=TRAINING, **{"method": "features", **settings})
        labels = ["B-X", "I-X", "O"] if kind == "tagging" else [] if kind in ("regression", "questions") else LABELS
        model = TaskModel(encoder, task=find_task(kind), settings=chosen, labels=labels).eval()
        if isinstance(model.head, Head):
            torch.nn.init.normal_(model.head.output.weight, std=0.5)
            last = model.head.output.in_features
            width = model.head.hidden[0].in_features if chosen.head_hidden else last
            model.head.norm.fit(torch.randn(9, width) * 2 + 1)
        if kind == "regression":
            model.head.prepare([np.asarray([1.0]), np.asarray([5.0])])
        if model.features.mix is not None:
            torch.nn.init.normal_(model.features.mix.scores)
        save_classifier(
            tmp_path / "model", model, family=family, tokenizer=tokenizer, facts={"task": "things"}, words=words,
            temperature=2.5 if kind in ("classification", "pair", "multilabel") else 1.0,
        )  # fmt: skip
        return tmp_path / "model"

    return write


def words_model() -> WordsModel:
    rows = [("a b c",), ("d dog",), ("a b d",), ("c c z",)]
    features = WordFeatures.fit(rows, terms=[("word", (1, 2)), ("char_wb", (2, 4))])
    given = np.eye(3)[[0, 1, 0, 2]]
    return WordsModel(features, fit_labels(spanned(features.matrix(rows)), given, c=10.0, exclusive=True))


def export(model: Path, form: str, **more: Any) -> tuple[Path, list[str]]:
    output = model.parent / f"out-{form}"
    source = Source(model, "things:3", "things", "d1", **more.pop("source", {}))
    return output, export_classifier(source, Export(output, form, **more))


@pytest.mark.parametrize(
    ("family", "kind", "settings"),
    [
        pytest.param("bert", "classification", {}, marks=pytest.mark.slow),
        ("bert", "classification", {**TRAINED, **DENSE}),
        pytest.param("ulmfit", "multilabel", {"head_hidden": 5, "head_norm": "none"}, marks=pytest.mark.slow),
        ("bert", "pair", LAST),
        pytest.param("word2vec", "regression", {"layers": "last", "pooling": "mean"}, marks=pytest.mark.slow),
        pytest.param("gpt", "classification", {"layers": "mix", "unit_length": True}, marks=pytest.mark.slow),
    ],
)
def test_the_graph_predicts_as_the_model(family, kind, settings, save, capfd):
    model = save(family, kind, **settings)
    output, _ = export(model, "onnx")
    assert capfd.readouterr() == ("", ""), "nothing of torch is printed"
    given = PAIRS if kind == "pair" else [(text,) for text in TEXTS]
    np.testing.assert_allclose(predict(output, given), load_classifier(model).answer(given), atol=1e-4)
    # The code of the card, with texts of different lengths.
    code = code_of_card(output)
    fields = [("a text", "another one"), ("two", "texts")] if kind == "pair" else [("a text",), ("another one",)]
    answers = load_classifier(model).answer(fields)
    shown = {
        "multilabel": lambda answer: [label for label, share in zip(LABELS, answer, strict=True) if share >= 0.5],
        "regression": lambda answer: pytest.approx(float(answer[0]), abs=1e-4),
    }.get(kind, lambda answer: LABELS[answer.argmax()])
    assert ast.literal_eval(run_code(code, output)) == [shown(answer) for answer in answers]


def code_of_card(folder: Path) -> str:
    (code,) = re.findall(r"```\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return code


def run_code(code: str, folder: Path) -> str:
    """What the code prints in a folder, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loss_of_int8_is_measured(save):
    model = save("bert", "classification")
    targets = [np.asarray([float(row % 3)]) for row in range(len(TEXTS))]
    rows = Split([(text,) for text in TEXTS], targets, [None] * len(TEXTS))
    output, lines = export(model, "onnx", int8=True, source={"rows": rows})
    exact = predict(output, rows.fields)
    np.testing.assert_allclose(exact, load_classifier(model).answer(rows.fields), atol=1e-4)
    # The measured loss is that of the exported files, and is in the model card.
    assert re.search(r"^macro F1 on 5 test rows of things: 0\.\d{4}, exported 0\.\d{4}; largest difference", lines[-2])
    loss = re.search(r"^int8: macro F1 (\d\.\d{4}) on the same rows, a loss of [+-]\d\.\d{4}$", lines[-1])
    assert loss
    small = predict(output, rows.fields, int8=True)
    measured = scoring_for("classification", LABELS).score(rows.fields, targets, small)["macro_f1"]
    assert f"{measured:.4f}" == loss.group(1)
    assert 0 < np.abs(np.stack(small) - np.stack(exact)).max() < 0.1
    assert all(f"- {line}" in (output / "README.md").read_text() for line in lines[-2:])


def test_a_model_with_words_is_not_a_graph(save, tmp_path):
    model = save("bert", "classification", words=WordsPart("mean", words_model(), 0.25))
    with pytest.raises(ConfigError, match="combined with a model of words"):
        export(model, "onnx")
    save_words(tmp_path / "words", models=[words_model()], kind="classification", labels=LABELS, facts={})
    with pytest.raises(ConfigError, match="is a model of words without a language model, which onnx cannot express"):
        export(tmp_path / "words", "onnx")


@pytest.mark.parametrize(
    ("family", "kind", "settings"),
    [
        ("roberta", "multilabel", LAST),
        ("albert", "classification", {"head_norm": "length"}),
        ("xlnet", "classification", LAST),
        ("mpnet", "regression", LAST),
        ("modernbert", "classification", TRAINED),
        ("bert", "classification", {**TRAINED, **FIRST}),
        ("bert", "pair", {**TRAINED, **FIRST, "pairs": "joined"}),
        ("bert", "pair", LAST),
        ("roberta", "classification", {"layers": "mix", "pooling": "lead", "unit_length": True}),
        ("gpt", "classification", {"layers": "concat_last_four", "head_hidden": 5, "head_norm": "batch"}),
    ],
)
def test_a_text_pipeline_predicts_as_the_model(family, kind, settings, save):
    model = save(family, kind, **settings)
    output, notes = export(model, "huggingface")
    assert notes[0].startswith("Headstart") and (output / "modeling_headstart.py").exists()
    card = (output / "README.md").read_text()
    assert "`trust_remote_code=True` runs that code" in card and "trust_remote_code=True)" in card
    if "pairs" in settings:
        assert ast.literal_eval(run_code(code_of_card(output), output))["label"] in LABELS
    run = pipeline("text-classification", str(output), trust_remote_code=True, top_k=None)
    classifier = load_classifier(model)
    rows = PAIRS if kind == "pair" else [(text,) for text in TEXTS[:4]]
    for row, answer in zip(rows, classifier.answer(rows), strict=True):
        actual = run(dict(zip(("text", "text_pair"), row, strict=False)))
        actual = actual[0] if isinstance(actual[0], list) else actual
        shares = {entry["label"]: entry["score"] for entry in actual}
        names = ["value"] if kind == "regression" else LABELS
        assert shares == pytest.approx(dict(zip(names, map(float, answer), strict=True)), abs=1e-4)


def test_tags_of_a_pipeline(save):
    model = save("bert", "tagging", layers="last")
    output, _ = export(model, "huggingface")
    run = pipeline("token-classification", str(output), aggregation_strategy="none", ignore_labels=[])
    classifier = load_classifier(model)
    words = ["a", "b", "c", "d"]
    encoded = classifier.encode([tuple(words)])
    outputs, _ = classifier.predictor.outputs(classifier.predictor.read(encoded))
    scores = outputs[0].softmax(-1).numpy()
    actual = run(" ".join(words))
    assert [entry["score"] for entry in actual] == pytest.approx(scores.max(1).tolist()[: len(actual)], abs=1e-4)
    assert [entry["entity"] for entry in actual] == [
        classifier.labels[index] for index in scores.argmax(1)[: len(actual)]
    ]


def test_answers_of_a_pipeline(save):
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    model = save("bert", "questions", layers="last")
    output, _ = export(model, "huggingface")
    classifier = load_classifier(model)
    run_code(code_of_card(output), output)
    (encoded,) = classifier.encode([("a b", "c d a b c")])
    outputs = classifier.predictor.outputs(classifier.predictor.read([encoded]))[0][0].numpy()
    tokens = AutoTokenizer.from_pretrained(output)("a b", "c d a b c", return_tensors="pt")
    assert tokens["input_ids"][0].tolist() == encoded.pieces[0].tolist()
    with torch.no_grad():
        theirs = AutoModelForQuestionAnswering.from_pretrained(output)(**tokens)
    columns = encoded.units[0][:, 0]
    both = torch.stack([theirs.start_logits[0], theirs.end_logits[0]], -1).numpy()[columns]
    np.testing.assert_allclose(both, outputs[: len(columns)], atol=1e-4)


@pytest.mark.parametrize(
    ("family", "kind", "settings", "form", "message"),
    [
        ("ulmfit", "classification", {}, "huggingface", "the family 'ulmfit' has no counterpart in transformers"),
        ("bert", "tagging", {}, "onnx", "tagging task is decoded outside of a graph; `--format cont"),
        ("bert", "tagging", {"layers": "last", "tagger": "crf"}, "huggingface", "tagger: crf has no counterpart"),
        ("bert", "tagging", {}, "huggingface", r"reads one layer by one linear layer \(layers: last"),
        ("bert", "tagging", {"layers": "last", "head_norm": "length"}, "huggingface", "head_norm: fixed"),
        ("gpt", "tagging", {"layers": "last"}, "huggingface", "transformers reads another piece of a word than gpt"),
        ("bert", "classification", {"chunk": 8}, "onnx", r"it reads long texts in parts \(chunk\)"),
        ("bert", "pair", {"pairs": "apart"}, "huggingface", "it reads two texts as two sequences"),
        ("flair", "classification", {}, "onnx", "a tokenizer of kind 'char' has no counterpart in tokenizer.json"),
        ("bert", "classification", {}, "vectors", "unknown format 'vectors'"),
    ],
)  # fmt: skip
def test_what_a_form_cannot_express(
    family: str, kind: str, settings: dict[str, Any], form: str, message: str, save: Save
) -> None:
    model = save(family, kind, **settings)
    with pytest.raises(ConfigError, match=message):
        export(model, form)
    assert not (model.parent / f"out-{form}").exists()


def test_the_container_serves_the_model(port, tmp_path):
    save_words(tmp_path / "model", models=[words_model()], kind="classification", labels=LABELS, facts={})
    output, _ = export(tmp_path / "model", "container")
    image = (ROOT / "infra" / "images" / "headstart.Dockerfile").read_text()
    dockerfile = (output / "Dockerfile").read_text()
    base = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert base == re.findall(r"^FROM (python\S+)", image, re.MULTILINE)
    assert re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)[-1] == "headstart"
    sources = re.findall(r"^COPY (\S+) \S+$", dockerfile, re.MULTILINE)
    assert sources and all((output / source).exists() for source in sources)
    assert (output / "requirements.lock").read_text() == (ROOT / "requirements.lock").read_text()
    command = json.loads(re.findall(r"^CMD (.*)$", dockerfile, re.MULTILINE)[-1])
    assert "8000" in command and "0.0.0.0" in command
    given = [sys.executable, *[{"8000": str(port), "0.0.0.0": "127.0.0.1"}.get(word, word) for word in command[1:]]]
    server = subprocess.Popen(given, cwd=output, env={"PYTHONPATH": str(output), "PATH": ""}, stderr=subprocess.PIPE)
    try:
        body = json.dumps({"inputs": {"text": ["a b c"]}}).encode()
        for _ in range(240):
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body)
                answer = json.load(urllib.request.urlopen(request))
                break
            except OSError:
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.25)
        expected = load_words(tmp_path / "model").answer([("a b c",)])[0]
        assert answer["predictions"][0]["label"] == LABELS[int(expected.argmax())]
    finally:
        server.terminate()
        server.wait()


def test_of_an_average_one_member_is_exported(tmp_path):
    first = words_model()
    second = replace(first, linear=replace(first.linear, intercepts=np.add(first.linear.intercepts, [0, 1, 0])))
    model, facts = tmp_path / "model", {"seeds": [3, 5]}
    save_words(model, models=[first, second], kind="classification", labels=LABELS, facts=facts)
    with pytest.raises(ConfigError, match=r"the average of 2 models \(seeds 3, 5\), which onnx .* --member 0"):
        export(model, "onnx")
    with pytest.raises(ConfigError, match="things:3, member 1: is a model of words"):
        export(model, "onnx", member=1)
    with pytest.raises(ConfigError, match=r"has 2 member\(s\), no member 2; the first is 0"):
        export(model, "onnx", member=2)
    assert (export(model, "container")[0] / "model" / "members" / "1" / "words.json").is_file()


def test_no_module_runs_code_of_foreign_folders():
    for package in ("benchmarks", "components", "flows", "headstart"):
        for path in (ROOT / package).rglob("*.py"):
            if "trust_remote_code" in (text := path.read_text(encoding="utf-8")):
                calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword)]
                assert all(node.arg != "trust_remote_code" for node in calls), path
