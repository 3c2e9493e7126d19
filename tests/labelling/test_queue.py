"""Texts to label next."""

import csv
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.tasks.data import one_hot
from components.data.tasks.kinds import find_kind
from components.labelling import models
from components.labelling.queue import queue
from components.labelling.selection import typical, typicality, uncertain
from components.learners.words.classifier import LinearClassifier, WordsModel
from components.learners.words.features import WordFeatures
from tests.example_task import rows, thing, write_jsonl


def alone(count: int):
    return lambda index: np.asarray([index])


def test_typical_texts_come_from_the_largest_clusters_first():
    rng = np.random.default_rng(0)
    centres = np.eye(3, dtype=np.float32)
    features = np.concatenate(
        [centres[[which]] + rng.normal(0, 0.05, (size, 3)) for which, size in enumerate((30, 20, 8))]
    )
    features = features.astype(np.float32)
    result = list(typical(features, labelled=features[:0], count=3, copies=alone(58)))
    assert [size for _, size in result] == [30, 20, 8]
    # The most typical text is near the centre of its cluster.
    apart = np.linalg.norm(features[:30] - features[:30].mean(0), axis=1)
    assert apart[result[0][0]] < np.median(apart)
    # A cluster with a labelled text comes last.
    later = list(typical(features, labelled=centres[:1], count=2, copies=alone(58)))
    assert [size for _, size in later] == [20, 8]


def test_uncertain_texts_are_different_and_balanced():
    features = np.asarray([[1, 0], [1, 0], [0, 1], [0.7, 0.7]], dtype=np.float32)
    probabilities = np.asarray([[0.55, 0.45], [0.55, 0.45], [0.6, 0.4], [0.01, 0.99]], dtype=np.float32)
    result = list(uncertain(features, probabilities, counts=None, count=2, copies=alone(4)))
    # The longest gradient first; its twin has distance 0 and cannot be second.
    assert result[0] == 0 and result[1] in (2, 3)
    # Label 1 has no texts, and only the last candidate is given it.
    balanced = list(uncertain(features, probabilities, counts=np.asarray([3, 0]), count=2, copies=alone(4)))
    assert balanced[0] == 3
    copies = list(uncertain(features, probabilities, counts=None, count=4, copies=lambda index: np.arange(4)))
    assert len(copies) == 1


def test_distances_of_gradients_are_those_of_the_outer_products():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(40, 5)).astype(np.float32)
    probabilities = rng.dirichlet(np.ones(3), 40).astype(np.float32)
    errors = probabilities - np.eye(3)[probabilities.argmax(1)]
    gradients = np.einsum("nc,nd->ncd", errors, features).reshape(40, -1)
    density = typicality(features) ** 4
    expected = [int((density * (gradients**2).sum(1)).argmax())]
    draw = np.random.default_rng(7)
    for _ in range(5):
        distances = ((gradients[:, None] - gradients[None, expected]) ** 2).sum(-1).min(1)
        distances[expected] = 0
        expected.append(int(draw.choice(40, p=density * distances / (density * distances).sum())))
    assert list(uncertain(features, probabilities, counts=None, count=6, copies=alone(40), seed=7)) == expected


def test_a_cold_start_and_later_rounds(project):
    cold = queue(project(count=0), count=6)
    assert [each.proposed for each in cold.suggestions] == [None] * 6
    assert cold.model == "words" and "typical" in cold.suggestions[0].why
    params = project()
    warm = queue(params, count=9)
    assert warm.model == "regression on words" and warm.labels == ["animal", "fruit", "metal"]
    assert len({each.key for each in warm.suggestions}) == 9
    given = Counter(each.proposed for each in warm.suggestions)
    assert set(given.values()) == {3}
    assert [each.key for each in queue(params, count=9).suggestions] == [each.key for each in warm.suggestions]
    for each in warm.suggestions:
        assert each.confidence == max(each.probabilities.values())
    skipped = {warm.suggestions[0].key}
    assert skipped.isdisjoint(each.key for each in queue(params, count=9, without=skipped).suggestions)


def test_labelled_held_out_and_near_copies_are_left_out(project):
    params = project()
    texts = [row["text"] for row in (rows(1)[0], rows(1, offset=200)[0])]
    long = "this is a long text about a horse that stands in a field near the old house and eats"
    near = long.replace("old house", "new house")
    file = Path("more/texts.txt")
    file.parent.mkdir()
    file.write_text("\n".join([texts[0].upper(), texts[1], long, near, near, "", "an iron bar"]) + "\n")
    result = queue(params, file=file, count=10)
    assert (result.candidates, result.left_out) == (3, 2)
    assert len(result.suggestions) == 2
    write_jsonl(file.parent / "only.jsonl", [{"text": texts[0]}])
    with pytest.raises(DataError, match="only.jsonl: holds no text that could be labelled"):
        queue(params, file=file.parent / "only.jsonl")
    (file.parent / "none.csv").write_text("text\n")
    with pytest.raises(DataError, match=r"none.csv: there is no text without labels; name a file: headstart suggest"):
        queue(params, file=file.parent / "none.csv")


def test_kinds(project):
    with pytest.raises(ConfigError, match="rows of kind tagging cannot be labelled here; supported: classification"):
        queue(project(kind="tagging"))
    pair = project(count=0, kind="pair", first="first", second="second")
    Path("task/test.jsonl").unlink()
    write_jsonl(
        Path("task/train.jsonl"),
        [{"first": r["text"], "second": thing(r["text"]), "label": r["label"]} for r in rows(2)],
    )
    with pytest.raises(ConfigError, match="name a file: headstart suggest FILE"):
        queue(pair)
    write_jsonl(Path("pairs.jsonl"), [{"first": r["text"], "second": "gold"} for r in rows(4, offset=30)])
    result = queue(pair, file=Path("pairs.jsonl"), count=4)
    assert len(result.suggestions[0].fields) == 2 and result.suggestions[0].proposed is not None
    several = project(count=0, kind="multilabel")
    Path("task/test.jsonl").unlink()
    write_jsonl(Path("task/train.jsonl"), [{"text": r["text"], "label": [r["label"], r["part"]]} for r in rows(4)])
    each = queue(several, count=3).suggestions[0]
    assert each.proposed is not None and set(each.probabilities) == {"animal", "even", "fruit", "metal", "odd"}


def test_the_command_writes_a_file_for_people(project):
    project()
    done = CliRunner().invoke(cli.app, ["suggest", "--count", "4"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "chosen by uncertainty and diversity (regression on words)" in done.output
    with Path("things-to-label.csv").open(encoding="utf-8-sig", newline="") as file:
        result = list(csv.DictReader(file))
    assert list(result[0]) == ["text", "label", "proposed", "confidence", "why"]
    assert len(result) == 4 and all(row["label"] == "" and row["proposed"] for row in result)
    with pytest.raises(ArtifactError, match="exists; choose another path, or replace it with --overwrite"):
        CliRunner().invoke(cli.app, ["suggest", "--output", "things-to-label.csv"], catch_exceptions=False)
    # The next round has a file of its own.
    further = CliRunner().invoke(cli.app, ["suggest", "--count", "2"], catch_exceptions=False)
    assert "things-to-label-2.csv --task things" in further.output and Path("things-to-label-2.csv").is_file()
    again = CliRunner().invoke(cli.app, ["suggest", "--count", "4", "--overwrite"], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    text = Path("things-to-label.csv").read_text().replace(",,", ",label,", 1)
    Path("things-to-label.csv").write_text(text)
    with pytest.raises(ArtifactError, match="exists, and has changed since Headstart has written it"):
        CliRunner().invoke(cli.app, ["suggest", "--overwrite"], catch_exceptions=False)
    assert Path("things-to-label.csv").read_text() == text


def test_the_champion_gives_features_and_proposals(project, monkeypatch):
    params = project(count=6)
    data = find_kind("classification").read("things", params.data.tasks["things"])
    given = one_hot(data.train.targets, labels=len(data.labels))
    features = WordFeatures.fit(data.train.fields)
    matrix = features.matrix(data.train.fields)
    classifier = LinearClassifier(
        "classification", data.labels, [WordsModel(features, models.fitted(matrix, given, exclusive=True))]
    )
    monkeypatch.setattr(models, "champion_of", lambda *_: classifier)
    result = queue(params, count=5)
    assert result.model == "champion"
    for each in result.suggestions:
        (answer,) = classifier.answer([each.fields])
        assert each.probabilities == pytest.approx(dict(zip(data.labels, answer.tolist(), strict=True)))
    # A label that the champion does not know: a model of all labels.
    with Path("task/train.jsonl").open("a") as file:
        file.write('{"text": "an oak", "label": "tree"}\n')
    assert queue(params, count=5).model == "regression on words"


@pytest.mark.parametrize("kind", ["classification", "pair"])
def test_the_encoder_of_the_run_gives_features(project, make_encoder, kind):
    params = project(count=3) if kind == "classification" else project(count=0, kind="pair")
    family = params.run.families[0]
    shutil.copytree(make_encoder(family), Path("out/encoder") / family / "adapted")
    file = None
    if kind == "pair":
        Path("task/test.jsonl").unlink()
        file = Path("pairs.jsonl")
        pairs = [{"first": row["text"], "second": "gold", "label": row["label"]} for row in rows(8)]
        write_jsonl(Path("task/train.jsonl"), pairs[:9])
        write_jsonl(file, pairs[9:])
    result = queue(params, count=3, file=file)
    assert result.model == f"regression on {family}-adapted" and len(result.suggestions) == 3
