"""The report: a self-contained page made from the files of the other stages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError
from components.registry.decide import Decision
from components.reporting import advice, evaluations, findings
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.reporting.stage import ReportJob, report


def interval(mean: float) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 0.02, "high": mean + 0.02, "seeds": [mean - 0.01, mean, mean + 0.01]}


def system(name: str, family: str, start: str, scores: list[float]) -> dict[str, Any]:
    return {
        "system": name,
        "family": family,
        "start": start,
        "budgets": [
            {
                "budget": budget,
                "labels": budget,
                "seeds": [0, 1, 2],
                "scores": {"macro_f1": interval(score), "ece": interval(0.125)},
                "per_class": {
                    label: {"precision": 0.5, "recall": 0.25, "f1": f1, "rows": 10}
                    for label, f1 in (("list", 0.9), ("map <b>", 0.1))
                },
                "slices": {"s3": {"rows": 12, "macro_f1": 0.5, "ece": 0.75}},
                "confusion": [[8, 2], [1, 9]],
                "calibration": [{"confidence": 0.9, "accuracy": 0.8, "rows": 20}],
                "training": {"seconds": {"mean": 2.0, "low": 1.0, "high": 3.0}},
            }
            for budget, score in zip((5, 20), scores, strict=True)
        ],
        "training_curve": [{"epoch": 0, "macro_f1": 0.4}, {"epoch": 1, "macro_f1": 0.5}],
    }


@pytest.fixture
def job(tmp_path: Path) -> ReportJob:
    """The outputs of a small run that the report reads."""
    out = tmp_path / "out"
    benefit = {"transferred": interval(0.5), "scratch": interval(0.26), "difference": interval(0.24)}
    wrong = [
        {"row": 3, "fields": ["a <i>text</i>"], "slice": None, "true": "list", "predicted": "map <b>", "size": size}
        for size in (0.97, 0.95, 0.9, 0.8, 0.7, 0.6)
    ]
    evaluation = {
        "confidence": 0.95,
        "main": "macro_f1",
        "scores": ["macro_f1", "ece"],
        "titles": {"macro_f1": "macro F1", "ece": "calibration error"},
        "unit": "labels a class",
        "selection": {"by": "budget", "folds": 5, "rows": 0},
        "headline": "With 5 labels a class, transfer was worth 4 times the labels.",
        "labels": ["list", "map <b>"],
        "rows": {"test": 20},
        "seeds": [0, 1, 2],
        "budgets": [5, 20],
        "systems": [
            system("tfidf", "baseline", "words", [0.45, 0.58]),
            system("ulmfit-scratch", "ulmfit", "scratch", [0.26, 0.4]),
            system("ulmfit-adapted", "ulmfit", "adapted", [0.5, 0.61]),
        ],
        "best": {"5": "ulmfit-adapted", "20": "ulmfit-adapted"},
        "benefits": [{"system": "ulmfit-adapted", "against": "labels", "benefit": "start", **benefit, "higher": True}],
        "mistakes": {"system": "ulmfit-adapted", "seed": 1, "wrong": 8, "rows": wrong},
        "statements": [{"kind": "missing", "budget": 5, "holds": True, "apart": False, "text": "Without rows: map."}],
        "differences": {
            "5": {"ulmfit-scratch": {"ulmfit-adapted": interval(-0.24) | {"clear": True}}},
            "20": {
                "tfidf": {
                    "ulmfit-scratch": interval(0.18) | {"clear": True},
                    "ulmfit-adapted": {"mean": -0.03, "low": -0.07, "high": -0.01, "clear": False},
                },
                "ulmfit-scratch": {"ulmfit-adapted": interval(-0.21) | {"clear": True}},
            },
        },
        "cut": {"ulmfit-adapted": 0.04, "ulmfit-scratch": 0.04},
    }
    metrics = {"parameters": 1234567, "tokens": 2000000, "seconds": 120.0, "tokens_per_second": 16666.0}
    metrics |= {"precision": "bf16", "perplexity_per_word": 41.5}
    forgotten = {"general_before_perplexity_per_word": 90.0, "general_after_perplexity_per_word": 250.0}
    files: dict[str, Any] = {
        "evaluation/demo/evaluation.json": evaluation,
        "metrics/pretrain/ulmfit.json": metrics,
        "metrics/adapt/ulmfit.json": metrics | forgotten,
        **{f"metrics/ingest/{corpus}.json": {"documents": 12000, "bad_bytes": 0} for corpus in ("general", "domain")},
        "metrics/tokenizer/domain-wordpiece.json": {"vocabulary": 8000, "unknown_rate": 0.001},
    }
    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(json.dumps(content))
    for stage in ("pretrain", "adapt"):
        (out / "curves" / stage).mkdir(parents=True)
        (out / "curves" / stage / "ulmfit.csv").write_text("step,tokens,loss\n1,100,6.2\n2,200,\n3,300,4.1\n")
    for directory in ("corpus/general", "corpus/domain", "encoder/ulmfit/pretrained", "encoder/ulmfit/adapted"):
        with writing(out / directory, kind="sample") as draft:
            (draft.path / "content").write_text(directory)
    with writing(out / "finetuned" / "demo" / "ulmfit-adapted", kind="sample") as draft:
        (draft.path / "content").write_text("classifier")
    (tmp_path / "data.dvc").write_text("outs:\n- md5: 0123456789abcdef.dir\n  path: data\n")
    return ReportJob(
        out=out,
        families=["ulmfit"],
        tasks=["demo"],
        starts=["scratch", "pretrained", "adapted"],
        output=out / "report",
        decision=out / "decision.json",
        data={"corpus/general": Path("data/general"), "corpus/domain": Path("data"), "examples/demo": Path("data/x")},
        project=tmp_path,
    )


def page_of(job: ReportJob, evaluation: dict[str, Any] | None = None) -> str:
    """The page of a report, with this evaluation of the task."""
    if evaluation is not None:
        (job.out / "evaluation" / "demo" / "evaluation.json").write_text(json.dumps(evaluation))
    return (report(job) / "report.html").read_text()


@pytest.fixture
def evaluation(job: ReportJob) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((job.out / "evaluation" / "demo" / "evaluation.json").read_text())
    return content


def test_the_page_is_self_contained_and_compares_the_systems(job):
    page = page_of(job)
    assert page_of(job) == page, "equal numbers give an equal page"
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)|@import|url\((?!#)""", page)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    for expected in [
        "With 5 labels a class, transfer was worth 4 times the labels.",
        "0.610 [0.590,\u00a00.630]",
        "90.0, 250.0",
        "data (version 0123456)",
        "12,000",
    ]:
        assert expected in page
    assert "map &lt;b&gt;" in page
    assert "<b>" not in page and ">BLEU<" not in page
    tables = re.findall(r"<h3>(Differences[^<]*)</h3>.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    rows = [[re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)]
            for _, body in tables]  # fmt: skip
    assert [title.partition(",")[0] for title, _ in tables] == [
        "Differences of macro F1", "Differences of macro F1"]  # fmt: skip
    assert rows[0] == [["ulmfit-scratch", "", "-0.240*"], ["ulmfit-adapted", "+0.240*", ""]]
    assert rows[1] == [
        ["tfidf", "", "+0.180*", "-0.030"],
        ["ulmfit-scratch", "-0.180*", "", "-0.210*"],
        ["ulmfit-adapted", "+0.030", "+0.210*", ""],
    ]


def test_a_budget_of_all_labels_is_named_so(job, evaluation):
    text = json.dumps(evaluation).replace('"budget": 20', '"budget": -1').replace("[5, 20]", "[5, -1]")
    page = page_of(job, json.loads(text) | {"best": {"-1": "ulmfit-adapted"}, "differences": {}})
    assert "ulmfit-adapted at all labels, the best system" in page and "Other metrics at all labels" in page
    assert "all labels a class" not in page.partition("What to do next")[0]


def test_a_task_without_classes_has_no_class_tables(job, evaluation):
    evaluation |= {"labels": [], "main": "f1", "scores": ["f1"], "titles": {"f1": "F1"}, "unit": "labelled rows"}
    evaluation |= {"headline": "", "kind": "tagging"}
    for actual in evaluation["systems"]:
        actual["training_curve"] = [{"epoch": 0, "f1": 0.4}]
        for cell in actual["budgets"]:
            cell |= {"scores": {"f1": interval(0.5)}, "per_class": {}, "slices": {}, "confusion": [], "calibration": []}
    # The words of a sentence stand in one line; characters that change the direction are marks.
    evaluation["mistakes"]["rows"][0]["fields"] = ["Marie", "Curie", "pay \u202e001\u2069"]
    evaluation["mistakes"]["rows"][0]["true"] = "\u200flist"
    page = page_of(job, evaluation)
    assert "F1 by labelled rows" in page and "Scores on the test split" in page
    assert "<td>Marie Curie pay [U+202E]001[U+2069]</td><td>[U+200F]list</td>" in page
    assert not re.search("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", page)
    for absent in ("Confusion", "Calibration", "Classes, in ascending", "slices", "Other metrics"):
        assert absent not in page


def test_every_study_of_the_run_is_a_chapter(job):
    assert json.loads((report(job) / "report.json").read_text())["studies"] == {}
    drawing = Drawing("<svg><text>drawn</text></svg>", "By layer.")
    actual = Findings(
        Chapter("Which layer to use", ["The <last>."], [], [Table(["layer"], [["last"]])], [drawing]), {"a": 1}
    )
    findings.write(job.out, "layers", actual, options={}, inputs={})
    page = page_of(job)
    assert "<h2>Which layer to use</h2>" in page and "The &lt;last&gt;." in page
    assert "<svg><text>drawn</text></svg>" in page and "<td>last</td>" in page
    assert json.loads((job.output / "report.json").read_text())["studies"] == {"layers": {"a": 1}}


def test_a_missing_output_is_named_with_its_stage(job):
    (job.out / "metrics" / "adapt" / "ulmfit.json").unlink()
    with pytest.raises(ArtifactError, match="ulmfit.json: missing; run the stage adapt first"):
        report(job)


def test_the_page_begins_with_what_a_person_wants_to_know(job):
    decision = {
        "verdict": "promote",
        "reasons": ["gain +0.03"],
        "story": "ulmfit-adapted (version 2) is served: gain +0.03",
        "alias_before": "1",
        "alias_after": "2",
        "served": {"version": "2", "system": "ulmfit-adapted", "evaluated": True},
    }
    job.decision.write_text(json.dumps({"decisions": {"demo": decision}}))
    directory = report(job)
    page = (directory / "report.html").read_text()
    begins = page[page.index("<h1>") : page.index("demo: comparison of the systems")]
    text = " ".join(re.sub(r"<[^>]+>", " ", begins).split())
    assert text.startswith("Headstart report With 5 labels a class, transfer was worth 4 times the labels.")
    assert begins.index("<svg") < begins.index("<table>") < begins.index("The current model")
    assert "The current model ulmfit-adapted (version 2) is served: gain +0.03." in text
    assert text.count("(current model)") == 1 and text.count("to their end") == 1
    assert "Write to params.yaml: finetune: {ulmfit: {max_length: 2000, chunk: 64}}" in text
    assert "8 test rows are wrong (ulmfit-adapted, the best system with the most labels, seed 1)." in text
    assert text.count("a &lt;i&gt;text&lt;/i&gt; list map &lt;b&gt; 0.") == 5
    assert "Label more texts: from 5 to 20 labels a class, macro F1 rose from 0.500 to 0.610. headstart suggest" in text
    summary = json.loads((directory / "report.json").read_text())["summary"]["demo"]
    assert len(summary["mistakes"]["rows"]) == 6 and summary["reasons"] == []
    assert summary["steps"][0]["command"] == "headstart suggest FILE --task demo --count 50"


DECISION = {
    "verdict": "inconclusive",
    "metric": "macro_f1",
    "candidate_score": 0.61,
    "champion_score": 0.6,
    "low": -0.02,
    "alpha": 0.0125,
    "units": "clusters",
    "count": 1088,
    "test": {"rows": 2619},
    "test_uses": 2,
    "reasons": ["few rows", "macro F1 0.6100 against 0.6000 of x/1: gain +0.0100, between -0.0200 and +0.0400 on rows"],
    "story": "x (version 1) stays: y is not shown to be better, macro F1 0.6100 against 0.6000 of x/1",
    "candidate": {"version": "2"},
    "served": {"version": "1", "system": "ulmfit-adapted", "evaluated": False},
}


def test_a_decision_is_said_once_and_only_a_model_of_the_run_is_marked(job):
    assert Decision.of(DECISION).grounds == [
        "Measured on 2,619 test rows in 1,088 clusters, such as documents and copies: comparison 2 on them; each bound "
        "is wrong in 1.25% of cases",
        "few rows",
    ]
    job.decision.write_text(json.dumps({"decisions": {"demo": DECISION}}))
    page = page_of(job)
    assert "(current model)" not in page and page.count("0.6100 against 0.6000") == 1
    of_run = DECISION | {"served": DECISION["served"] | {"evaluated": True}}
    job.decision.write_text(json.dumps({"decisions": {"demo": of_run}}))
    assert page_of(job).count("ulmfit-adapted (current model)") == 1


def test_labels_that_exist_are_used_before_further_ones(job, evaluation):
    stored = {"scores": {"macro_f1": interval(0.6)}, "labels": 120}
    evaluation["systems"][-1]["artifact"] = stored
    evaluation["rows"] = {"train": 100_996, "test": 20}
    (step, *_) = advice.advice("demo", evaluation)
    assert step.text == "Use more of your labels (120 of 100,996 rows): from 5 to 20 labels a class, macro F1 rose from 0.500 to 0.610."  # fmt: skip  # noqa: E501
    assert step.line == "data: {tasks: {demo: {budgets: [5, 20, 80]}}}" and step.command == "headstart retrain"
    evaluation["rows"]["train"] = 121
    stored["labels"] = 30
    assert advice.advice("demo", evaluation)[0].line == "data: {tasks: {demo: {budgets: [5, 20, 80]}}}"
    evaluation["rows"]["train"] = 79
    assert advice.advice("demo", evaluation)[0].line == "data: {tasks: {demo: {budgets: [5, 20, 'all']}}}"
    evaluation["rows"]["train"] = 30
    assert advice.advice("demo", evaluation)[0].text.startswith("Label more texts: from 5 to 20")


def test_columns_that_say_the_same_are_left_out(job, evaluation):
    for actual, labels in zip(evaluation["systems"], (120, 120, 120), strict=True):
        actual["artifact"] = {"scores": {"macro_f1": interval(0.6)}, "labels": labels}
    table = evaluations.by_system(evaluation)
    assert table.columns == ["system", "5 labels", "20 labels", "registered"] and "learned from (120)" in table.title
    evaluation["systems"][0]["artifact"]["labels"] = 60
    assert evaluations.by_system(evaluation).columns[-1] == "its labels"
    for actual in evaluation["systems"]:
        actual["budgets"] = actual["budgets"][1:]
        actual["artifact"]["scores"] = actual["budgets"][0]["scores"]
    evaluation["budgets"] = [20]
    assert evaluations.by_system(evaluation).columns == ["system", "20 labels"]


def test_further_lines_of_the_page(job, evaluation):
    """Parts of a pair, teachers of a student, and BLEU of translation models."""
    evaluation["mistakes"]["rows"][0]["fields"] = ["Marie", "sleeps"]
    path = job.out / "metrics" / "pretrain" / "ulmfit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"bleu": 18.855}))
    students = {"ulmfit-scratch-from-small": ["ulmfit-adapted", "latent-words"]}
    page = page_of(job.model_copy(update={"students": students}), evaluation | {"kind": "pair"})
    assert "<td>Marie / sleeps</td>" in page
    assert "ulmfit-scratch-from-small has learned the predictions of ulmfit-adapted and latent-words." in page
    section = page.partition("<h2>Language models")[2].partition("<h2>")[0]
    rows = re.findall(r"<tr><td>(ulmfit-\w+)</td>.*<td class=.right.>([\d.]*)</td></tr>", section)
    assert rows == [("ulmfit-pretrained", "18.9"), ("ulmfit-adapted", "")]
