"""`fit`, `load` and the models that they return."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import headstart
from components.core.artifacts import read_manifest
from components.core.clock import OutOfTimeError
from components.core.errors import ArtifactError, HeadstartError
from components.data.sampling import read_rows
from components.data.tasks.examples import read_facts
from components.data.understanding import understand
from components.interchange.vectors import write_vectors
from components.learners.abstention import threshold_of
from components.learners.finetuning.runs import Forecast
from components.learners.loading import load_model
from components.learners.task_models.kinds import TASKS
from headstart import fit, load
from headstart.fitting import READS_LABELS, finetuning_of
from headstart.report import Report, Tried
from headstart.tables import InputError
from headstart.tasks import read_task
from tests.data.public_inputs import targets_of
from tests.example_task import ROWS, rows
from tests.inference.files import predict_file

ROOT = Path(__file__).parents[2]


def test_frame_in_frame_out(frame, later, capfd):
    model = fit(frame, verbose=False)
    assert capfd.readouterr() == ("", "")
    result = model.predict(later)
    named = [f"probability_{name}" for name in ("animal", "fruit", "metal")]
    assert list(result.columns) == ["label", "confidence", *named]
    assert list(result.index) == list(later.index)
    assert (result["label"] == later["label"]).mean() >= 0.9
    shares = result.filter(like="probability_").to_numpy()
    assert np.array_equal(shares, model.predict_proba(later))
    assert np.allclose(shares.sum(1), 1)
    assert np.array_equal(result["confidence"], shares.max(1))
    report = model.report
    assert (report.labels, report.folds, report.metric) == (30, 5, "macro_f1")
    # The first system that is not worse than the best by more than one standard error.
    assert report.best.high >= max(each.score for each in report.tried if each.score is not None)
    assert report.best.low <= report.best.score <= report.best.high
    systems = {"tfidf-words", "tfidf-words-pairs", "tfidf-words-characters", "most-frequent"}
    assert {each.system for each in report.tried} == systems
    assert report.table["chosen"].sum() == 1
    assert report.chosen in str(report) and "within 30 labels" in str(report)


def test_forms_of_data_give_the_same_model(frame, fitted, tmp_path):
    texts, labels = frame["text"].tolist(), frame["label"].tolist()
    frame.rename(columns={"text": "said", "label": "about"}).assign(number=1).to_csv(tmp_path / "rows.csv", index=False)
    models = [
        fitted,
        fit(texts, label=labels, verbose=False),
        fit(np.array(texts), label=pd.Series(labels), verbose=False),
        fit(frame.to_dict("records"), verbose=False),
        fit(tmp_path / "rows.csv", text="said", label="about", verbose=False),
    ]
    first = models[0].predict(texts)
    for model in models[1:]:
        pd.testing.assert_frame_equal(model.predict(texts), first, check_exact=True)
    # The columns of the fit are those of later data; a table with one column of text need not name it.
    renamed = pd.DataFrame({"said": texts, "other": texts[::-1]})
    own = renamed.rename(columns={"said": "text"})
    for given in (renamed, renamed.assign(text="none"), own, pd.DataFrame({"anything": texts})):
        pd.testing.assert_frame_equal(models[4].predict(given), first, check_exact=True)
    with pytest.raises(InputError, match="has no column 'said'; known: more, other"):
        models[4].predict(pd.DataFrame({"other": texts, "more": texts}))


def test_saved_model_predicts_the_same_as_the_command(fitted, later, tmp_path):
    model = fitted
    folder = model.save(tmp_path / "saved")
    assert read_manifest(folder, verify=True).kind == "classifier"
    expected = model.predict(later)
    again = load(folder)
    pd.testing.assert_frame_equal(again.predict(later), expected, check_exact=True)
    assert again.report == model.report
    assert repr(again) == f"Model(classification, 3 labels, {model.report.chosen})"
    # As `headstart predict` and `headstart serve` load and answer.
    later.to_json(tmp_path / "later.jsonl", orient="records", lines=True)
    source = pd.read_json(tmp_path / "later.jsonl", lines=True)[["text"]]
    source.to_csv(tmp_path / "later.csv", index=False)
    predict_file(tmp_path / "later.csv", output=tmp_path / "out.parquet", classifier=load_model(folder))
    written = pd.read_parquet(tmp_path / "out.parquet")
    assert written["confidence"].tolist() == expected["confidence"].tolist()
    assert written["prediction"].tolist() == expected["label"].tolist()
    # Rows whose confidence is too low for an error abstain.
    marked = again.predict(later, error=0.5)
    assert marked.drop(columns=["out_of_domain", "abstained"]).equals(expected)
    elsewhere = again.predict(["Наконец наступила весна, и снег растаял."], error=0.5)
    assert elsewhere["out_of_domain"].all() and elsewhere["abstained"].all()
    threshold = threshold_of(folder, 0.5, what="model")
    assert marked["abstained"].equals((expected["confidence"] < threshold) | marked["out_of_domain"])
    assert not marked["abstained"].all()
    # It is replaced on request, but no other folder is.
    with pytest.raises(ArtifactError, match="exists; choose another path"):
        model.save(folder)
    model.save(folder, overwrite=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="exists, and was not written by Headstart"):
        model.save(tmp_path / "other", overwrite=True)
    with pytest.raises(ArtifactError, match="contains files of others"):
        fit(later.assign(label="a"), folder=tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["file"]
    (folder / "words.json").write_text("{}")
    with pytest.raises(ArtifactError, match="words.json"):
        load(folder)


def test_start_with_an_encoder(
    frame,
    later,
    make_encoder,
    in_process,
    tmp_path,
):
    model = fit(frame, start=make_encoder("bert"), minutes=1, folds=2, folder=tmp_path / "work", verbose=False)
    tried = {(each.system, each.way) for each in model.report.tried}
    assert ("encoder-bert-true-pretrained", "features") in tried
    assert ("encoder-bert-true-pretrained", "contrastive") in tried
    # The run's folder holds the same model.
    run = load(tmp_path / "work")
    pd.testing.assert_frame_equal(run.predict(later), model.predict(later), check_exact=True)
    # A run has no chosen model; the one with the best score of selection is used.
    shutil.rmtree(tmp_path / "work" / "chosen")
    # A run has recorded the columns of its labelled data.
    (recorded := tmp_path / "work" / "identity" / "examples").mkdir(parents=True)
    settings = '{"settings": {"data.tasks.task.kind": "classification", "data.tasks.task.text": "said"}}'
    (recorded / "task.json").write_text(settings)
    run = load(tmp_path / "work")
    renamed = later.rename(columns={"text": "said"}).assign(text="none")
    for loaded in (run, load(run.save(tmp_path / "run"))):
        assert loaded.predict(renamed).equals(run.predict(later))
    with pytest.raises(InputError, match=r"has no task 'tusk'; did you mean 'task'"):
        load(tmp_path / "work", task="tusk")
    # The encoder's model, whichever has won.
    fine = load(tmp_path / "work" / "finetuned" / "task" / "encoder-bert-true-pretrained" / "classifier")
    pd.testing.assert_frame_equal(
        load(fine.save(tmp_path / "saved")).predict(later), fine.predict(later), check_exact=True
    )
    # A repeated call continues an interrupted one, and ends with the same model.
    again = fit(frame, start=make_encoder("bert"), minutes=1, folds=2, folder=tmp_path / "work", verbose=False)
    pd.testing.assert_frame_equal(again.predict(later), model.predict(later), check_exact=True)
    # A limit that is not reached changes nothing.
    free = fit(frame, start=make_encoder("bert"), folds=2, verbose=False)
    pd.testing.assert_frame_equal(free.predict(later), model.predict(later), check_exact=True)
    assert not any("not tried" in note for note in model.report.notes)


def test_start_with_word_vectors(frame, later, in_process, tmp_path):
    words = sorted({word for text in [*frame["text"], *later["text"]] for word in text.lower().split()})
    write_vectors(tmp_path / "words.txt", words, np.eye(len(words), dtype=np.float32))
    model = fit(frame, start=tmp_path / "words.txt", minutes=1, folds=2, verbose=False)
    # A table of vectors is all that contrastive training can train.
    assert {each.way for each in model.report.tried if each.score is not None} >= {"features", "contrastive"}
    assert (model.predict(later)["label"] == later["label"]).mean() >= 0.9


def test_the_report_names_shortened_training():
    tried = [
        Tried("bert", "contrastive", 0.8, 0.7, 0.9, share=0.4),
        Tried("bert", "features", 0.7),
        Tried("bert", "finetune"),
    ]
    report = Report("classification", "macro_f1", 20, 5, "bert", "contrastive", tried)
    notes = [line for line in str(report).splitlines() if "steps" in line]
    assert notes == ["bert contrastive: trained for 40% of its steps; raise `minutes` to train for all"]
    assert Report.of(report.as_dict()) == report


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression", "pair"])
def test_kinds_with_words(kind):
    data = pd.DataFrame([ROWS[kind](row) for row in rows(6)])
    model = fit(data, verbose=False)
    assert model.kind == kind
    inputs = data[[name for name in ("text", "first", "second") if name in data]]
    result = model.predict(inputs)
    assert len(result) == len(data)
    if kind == "multilabel":
        assert list(result.columns[:1]) == ["labels"]
        assert (
            np.mean([set(ours) == set(true) for ours, true in zip(result["labels"], data["label"], strict=True)]) > 0.5
        )
    elif kind == "regression":
        assert list(result.columns) == ["value"]
        with pytest.raises(InputError, match="has no probabilities"):
            model.predict_proba(inputs)
    elif kind == "pair":
        listed = list(zip(data["first"], data["second"], strict=True))
        pd.testing.assert_frame_equal(model.predict(listed), result, check_exact=True)


@pytest.mark.parametrize("kind", ["tagging", "similarity"])
def test_kinds_without_a_start_and_with_one(kind, make_encoder, in_process):
    data = pd.DataFrame([ROWS[kind](row) for row in rows(3)])
    if kind == "tagging":  # sentences longer than the positions of the encoder
        data = pd.concat([data, data[:6].map(lambda value: value * 20)], ignore_index=True)
    report = str(fit(data, folds=2, verbose=False).report)
    assert "No published encoder is used, words only; all-MiniLM-L6-v2 is 84 MB to download once: " in report
    model = fit(data, start=make_encoder("bert"), minutes=1, folds=2, verbose=False)
    assert model.kind == kind
    result = model.predict(data)
    assert list(result.columns) == (["tags", "spans"] if kind == "tagging" else ["value"])
    if kind == "tagging":
        assert [len(tags) for tags in result["tags"]] == [len(words) for words in data["words"]]
        pd.testing.assert_frame_equal(model.predict(data["words"].tolist()), result, check_exact=True)


def test_labels_keep_their_types(frame, tmp_path):
    numbers = frame["label"].map({"animal": 10, "fruit": 9, "metal": 2})
    model = fit(frame["text"], label=numbers, verbose=False)
    assert model.classes == [10, 2, 9]  # sorted as text
    assert set(model.predict(frame["text"])["label"]) == {2, 9, 10}
    assert load(model.save(tmp_path / "saved")).classes == [10, 2, 9]


def test_what_labels_mean(frame, tmp_path):
    numbers = frame["label"].map({"animal": 10, "fruit": 9, "metal": 2})
    labels = {10: ["animal", "a living thing"], 9: "fruit"}
    # The time does not suffice for the start, which is never read.
    given = {"start": tmp_path, "minutes": 0.1, "verbose": False}
    fit(frame["text"], label=numbers, labels=labels, folder=tmp_path / "work", **given)
    facts = read_facts(tmp_path / "work" / "examples")
    assert facts.label_texts == {"10": ["animal", "a living thing"], "9": ["fruit"]}


@pytest.mark.parametrize(
    ("kind", "labels", "message"),
    [
        ("classification", {"pos": None}, "labels: 'pos': give a text, or a list of texts that are not empty"),
        ("classification", {"pos": ["good", " "]}, "labels: 'pos': give a text, or a list of texts"),
        ("classification", {"pos": 3}, "labels: 'pos': give a text, or a list of texts"),
        ("classification", ["a"], "labels: list; give a mapping: label -> a text"),
        ("classification", {"poz": "a"}, "labels: 'poz' is not a label; the labels are neg, pos"),
        ("classification", {"pos": "good"}, "labels: only an encoder reads what labels mean; name one with start"),
        ("pair", {"pos": "good"}, "labels: no model of kind pair reads what labels mean; leave them out"),
    ],
)
def test_texts_of_labels_that_are_wrong_or_have_no_effect(kind, labels, message):
    data = [{"first": f"a{n} b", "second": f"c d{n}", "label": ("neg", "pos")[n % 2]} for n in range(12)]
    text = ["first", "second"] if kind == "pair" else "first"
    with pytest.raises(InputError, match=f"^{message}"):
        fit(data, text=text, label="label", kind=kind, labels=labels, verbose=False)


def test_the_kinds_that_read_texts_of_labels():
    reading = {kind for kind, task in TASKS.items() if task.single and task.labels_rows}
    assert {*READS_LABELS} == reading


def test_rows_without_a_label_and_texts_without_labels(frame, tmp_path):
    partly = frame.copy()
    partly.iloc[12:, 1] = None
    model = fit(partly, verbose=False)
    assert model.report.labels == 12
    assert "18 rows have no label; their texts are used without one." in model.report.notes
    (tmp_path / "more.txt").write_text("\n".join(frame["text"][12:]) + "\n")
    other = fit(frame[:12], unlabelled=[tmp_path / "more.txt"], verbose=False)
    scores = {each.system: each.score for each in model.report.tried}
    assert {each.system: each.score for each in other.report.tried} == scores
    # They are used: the latent vectors are fitted on them.
    alone = fit(frame[:12], verbose=False)
    assert {each.system: each.score for each in alone.report.tried} != scores


def test_missing_texts_have_no_prediction(fitted):
    result = fitted.predict(["the apple", None, "  ", float("nan")])
    assert result["label"].isna().tolist() == [False, True, True, True]
    assert fitted.predict([]).empty
    with pytest.raises(InputError, match="row 1: the text is missing"):
        fitted.predict_proba(["the apple", ""])


@pytest.mark.parametrize("case", yaml.safe_load(Path(__file__).with_name("errors.yaml").read_text()))
def test_errors_say_where_and_what_to_do(case):
    data = pd.DataFrame(case["data"]) if isinstance(case["data"], dict) else case["data"]
    with pytest.raises(HeadstartError, match=re.escape(case["message"])):
        fit(data, verbose=False, **case.get("arguments", {}))


def test_errors_name_the_index_and_the_line(fitted, later, tmp_path):
    broken = later.astype(object)
    broken.iloc[2, 0] = 7
    with pytest.raises(InputError, match=r"row 2 \(index 'row-2'\), column 'text': is int"):
        fit(broken, verbose=False)
    with pytest.raises(InputError, match=r"row 2 \(index 'row-2'\), column 'text': is int"):
        fitted.predict(broken)
    (tmp_path / "rows.csv").write_text("text,label\na b,x\n,y\nc d,y\n5,x\n")
    task = read_task(tmp_path / "rows.csv")
    assert len(task.fields) == 3
    assert f"1 row(s) have no text and are left out, the first: {tmp_path}/rows.csv, line 3" in task.notes


def guessed(path: Path, data: pd.DataFrame) -> tuple[Any, ...]:
    """Kind and columns by `headstart init`, after comparison with those of the DataFrame and of the file."""
    data.to_csv(path, index=False)
    keys = understand(read_rows(path)).keys
    columns = {key: keys[key] for key in ("text", "first", "second") if key in keys}
    for given in (data, path):
        result = read_task(given)
        assert (result.kind, result.columns) == (keys["kind"], columns)
    return keys["kind"], *columns.values(), keys.get("label", keys.get("score", keys.get("labels")))


def test_a_file_and_a_dataframe_are_guessed_alike(tmp_path):
    texts, path = [f"a text {n}" for n in range(60)], tmp_path / "rows.csv"
    each = pd.DataFrame({"code": [str(n % 3) for n in range(60)], "note": texts})
    assert guessed(path, each.assign(topic=["x", "y"] * 30)) == ("classification", "note", "topic")
    assert guessed(path, each.assign(stars=[n % 30 for n in range(60)])) == ("classification", "note", "stars")
    assert guessed(path, each.assign(stars=[3 * (n % 30) for n in range(60)])) == ("regression", "note", "stars")
    assert guessed(path, each.assign(labels=["x;y", "x", "y", "y;x"] * 15)) == ("multilabel", "note", "labels")
    assert guessed(path, each.assign(labels=["<x><y>", "<x>", "<y>"] * 20)) == ("multilabel", "note", "labels")
    angled = read_task(each.assign(labels=["<x><y>", "<x>", "<y>"] * 20))
    assert targets_of(angled)[:3] == [["x", "y"], ["x"], ["y"]]
    long = each.assign(label=["a long name of a class", "another long name"] * 30)
    assert guessed(path, long) == ("classification", "note", "label")
    flags = pd.DataFrame({"text": texts, "rude": [0, 1] * 30, "toxic": [1, 0, 0] * 20})
    assert guessed(path, flags) == ("multilabel", "text", ["rude", "toxic"])
    task = read_task(flags)
    assert targets_of(task)[:4] == [["toxic"], ["rude"], [], ["rude", "toxic"]]
    pair = pd.DataFrame({"text_a": texts, "text_b": texts, "label": [n / 4 for n in range(60)]})
    assert guessed(path, pair) == ("similarity", "text_a", "text_b", "label")
    scored = pair.rename(columns={"label": "score"}).assign(genre=["news", "forum"] * 30)
    assert guessed(path, scored) == ("similarity", "text_a", "text_b", "score")


def test_loading_names_what_is_wrong(tmp_path, make_encoder):
    with pytest.raises(ArtifactError, match="neither a saved model nor the folder of a run"):
        load(tmp_path)
    with pytest.raises(ArtifactError, match="does not exist"):
        load(tmp_path / "nothing")
    with pytest.raises(ArtifactError, match=r"an output of another kind \(encoder\)"):
        load(make_encoder("bert"))


def test_names_of_the_package():
    assert set(headstart.__all__) <= set(dir(headstart))
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        headstart.fitt  # noqa: B018


def test_settings_of_an_encoder(make_encoder, monkeypatch):
    encoder = make_encoder("bert")
    short, long = [("the apple",)] * 20, [("the apple is red " * 20,)] * 20
    result = finetuning_of(encoder, short, kind="classification", minutes=2)
    # The encoder has 24 positions.
    assert (result.method, result.auto.minutes, result.max_length, result.chunk) == ("auto", 2, 24, None)
    assert not result.unit_length
    windows = finetuning_of(encoder, long, kind="classification", minutes=None)
    assert (windows.max_length, windows.chunk) == (96, 24), "80 words and 2 special pieces"
    pairs = [(text, text) for (text,) in long]
    assert finetuning_of(encoder, pairs, kind="pair", minutes=None).chunk is None
    tagging = finetuning_of(encoder, short, kind="tagging", minutes=2)
    assert (tagging.epochs, tagging.words, tagging.training.rate) == (12, "none", 4 * result.training.rate)
    monkeypatch.setattr("components.models.encoder.LARGE", 1)
    assert finetuning_of(encoder, pairs, kind="pair", minutes=2).auto.ways == ["features"]


def test_a_limit_that_has_passed_leaves_one_words_model(frame, make_encoder):
    model = fit(frame, start=make_encoder("bert"), minutes=1e-6, verbose=False)
    assert [each.system for each in model.report.tried] == ["tfidf-words-characters"]
    (note,) = [note for note in model.report.notes if "not tried" in note]
    assert note.startswith("1e-06 minutes were not enough")
    assert all(name in note for name in ("tfidf-words", "the start"))
    assert set(model.predict(frame)["label"]) == {"animal", "fruit", "metal"}


def test_training_that_would_not_end_in_time_leaves_the_frozen_encoder(frame, make_encoder, in_process, monkeypatch):
    def late(self, left):
        raise OutOfTimeError

    monkeypatch.setattr(Forecast, "check", late)
    model = fit(frame, start=make_encoder("bert"), minutes=4, folds=2, verbose=False)
    scores = {each.way: each.score for each in model.report.tried if each.way}
    assert scores["features"] is not None and scores["contrastive"] is None
    assert any("not tried" in note and "contrastive" in note for note in model.report.notes)
