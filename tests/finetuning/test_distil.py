"""Students that learn the predictions of teachers."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression

from components.core.artifacts import read_manifest, writing
from components.core.errors import ArtifactError, ConfigError
from components.data.ingestion.unlabelled import UnlabelledJob, unlabelled
from components.data.tasks.examples import ExamplesJob, examples, read_split
from components.data.unlabelled_texts import digest_of, read_unlabelled
from components.learners.finetuning import distil as distillation
from components.learners.finetuning.distil import DistilJob, TeachJob, distil, teach
from components.learners.finetuning.fit import FinetuneJob, Fit, pack, unpack
from components.learners.finetuning.soft_labels import FILE, KIND, read_soft_labels, soft_labels_of
from components.learners.finetuning.stage import finetune, fits_of
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.settings.finetune import DistilSettings
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl
from tests.finetuning.interruption import contents, finish_interrupted, with_checkpoints

IMITATING = sorted(kind for kind, task in TASKS.items() if task.imitates)
#: Rows of a budget, with at least one of each class in every fold.
BUDGETS = {"classification": 3, "pair": 3}
SETTINGS = DistilSettings(teachers=["bert-adapted"], students=["word2vec-adapted"])


class Project:
    """A teacher and a student with few labels, and texts without labels."""

    def __init__(self, make_job: Callable[..., FinetuneJob], folder: Path) -> None:
        self.make_job, self.folder = make_job, folder

    def examples(self, kind: str, selection: str) -> Path:
        made = self.folder / f"few-examples-{kind}-{selection}"
        if not made.exists():
            data = self.folder / f"few-{kind}"
            for split, count, offset in (("train", 10, 0), ("dev", 2, 100), ("test", 2, 200)):
                write_jsonl(data / f"{split}.jsonl", [ROWS[kind](row) for row in rows(count, offset=offset)])
            source = TaskSource(
                path=str(data), kind=kind, budgets=[BUDGETS.get(kind, 9)], seeds=[0], selection=selection, folds=3
            )
            examples(ExamplesJob(task="things", source=source, output=made))
        return made

    def texts(self, kind: str, selection: str) -> Path:
        output = self.folder / f"texts-{kind}-{selection}"
        if not output.exists():
            unlabelled(
                UnlabelledJob(
                    task="things",
                    key="distil.small",
                    examples=self.examples(kind, selection),
                    corpus=self.folder,
                    which="task",
                    rows=20,
                    output=output,
                )
            )
        return output

    def job(
        self, family: str, kind: str = "classification", *, selection: str = "budget", name: str, **changes: Any
    ) -> FinetuneJob:
        made = self.make_job(family, kind, name=name, **changes)
        return made.model_copy(update={"examples": self.examples(kind, selection)})

    def teacher(
        self, kind: str = "classification", *, selection: str = "budget", family: str = "bert", **changes: Any
    ) -> TeachJob:
        """The job of a teacher, after its fine-tuning."""
        name = f"teacher-{family}-{kind}-{selection}"
        job = self.job(family, kind, selection=selection, name=name, **changes)
        finetuned = job.output if job.output.exists() else finetune(job)
        return TeachJob(
            **dict(job)
            | {"output": self.folder / f"taught-{kind}-{selection}" / f"{family}-adapted"}
            | {"group": "small", "distil": SETTINGS, "texts": self.texts(kind, selection), "finetuned": finetuned}
        )

    def student(
        self, family: str = "word2vec", kind: str = "classification", *, selection: str = "budget", **changes: Any
    ) -> DistilJob:
        """The job of a student."""
        settings = changes.pop("distil", SETTINGS).model_copy(update={"students": [f"{family}-adapted"]})
        job = self.job(family, kind, selection=selection, name=changes.pop("name", f"student-{family}"), **changes)
        return DistilJob(
            **dict(job)
            | {"start": "adapted-from-small", "group": "small", "distil": settings, "student": f"{family}-adapted"}
            | {"texts": self.texts(kind, selection), "taught": self.folder / f"taught-{kind}-{selection}"}
        )


@pytest.fixture(autouse=True)
def epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.learners.ways.distil.EPOCHS", 16)


@pytest.fixture
def project(make_job, in_process, tmp_path: Path) -> Project:
    return Project(make_job, tmp_path)


def records_of(output: Path) -> list[dict[str, Any]]:
    return json.loads((output / "runs.json").read_text())


def answers_of(output: Path, split: str = "test") -> np.ndarray:
    table = pq.read_table(output / "runs.parquet", filters=[("split", "=", split)])
    return np.asarray(table.column("answer").to_pylist(), dtype=np.float32)


def fits_of_student(job: DistilJob) -> list[Fit]:
    """The training of a student and those of its folds, as the cross-validation makes them."""
    settings = job.settings.model_copy(update={"method": "distil"})
    teachers = [job.taught / name / FILE for name in job.distil.teachers]
    (fit,) = fits_of(job, settings, texts=job.texts, teachers=teachers)
    return [fit, *(replace(fit, fold=fold, folds=3) for fold in range(3))]


@pytest.mark.parametrize("family", ["bert", "elmo", "glove"])
def test_families_learn_from_a_teacher(family, project):
    teach(project.teacher())
    job = project.student(family)
    output = distil(job)
    (record,) = records_of(output)
    assert [way["way"] for way in record["ways"]] == ["finetune", "distil"]
    assert read_manifest(output).facts["system"] == f"{family}-adapted-from-small"
    served = load_classifier(output / "classifier").answer(read_split(job.examples, "test").fields)
    np.testing.assert_array_equal(served, answers_of(output))


@pytest.mark.parametrize(("kind", "selection"), [*((kind, "budget") for kind in IMITATING), ("tagging", "dev")])
def test_every_kind_with_soft_predictions_is_distilled(kind, selection, project, monkeypatch):
    teacher = project.teacher(kind, selection=selection)
    taught = teach(teacher)
    tensors = load_file(taught / FILE)
    names = {name for name in tensors if not name.endswith(".lengths")}
    budget = BUDGETS.get(kind, 9)
    assert names == {f"{budget}.0.{fold}" for fold in (["all", 0, 1, 2] if selection == "budget" else ["all"])}
    texts = read_unlabelled(teacher.texts)
    for name in names:
        actual = unpack(name, tensors)
        assert len(actual) == len(texts) == 20
        if kind in ("classification", "pair", "choice"):
            np.testing.assert_allclose([answer.sum() for answer in actual], 1, atol=1e-5)
        if kind == "tagging":
            tags = len(json.loads((teacher.examples / "labels.json").read_text()))
            assert [len(answer) for answer in actual] == [len(words) * tags for words in texts]
    # The way with teachers is kept, to see that its predictions are served.
    monkeypatch.setattr("components.learners.finetuning.execution._best", lambda candidates: candidates[-1])
    job = project.student("word2vec", kind, selection=selection)
    output = distil(job)
    (record,) = records_of(output)
    assert record["way"] == "distil" and record["curve"][-1]["step"] == 5
    test = read_split(job.examples, "test")
    expected = pq.read_table(output / "runs.parquet", filters=[("split", "=", "test")]).column("answer").to_pylist()
    served = load_classifier(output / "classifier").answer(test.fields)
    for answer, stored in zip(served, expected, strict=True):
        np.testing.assert_array_equal(answer, np.asarray(stored, dtype=np.float32))


@pytest.mark.parametrize("fold", [1, None])
def test_the_teacher_of_a_fold_has_learned_from_the_rows_outside_it(fold, project):
    """Compared with scikit-learn's regression on exactly these rows."""
    job = project.teacher(method="features", head_steps=1000, head_norm="none")
    taught = teach(job)
    (labelled,) = (fit for (fit,) in distillation._labelling(job, texts="") if fit.fold == fold)
    train = read_split(job.examples, "train")
    actual = labelled.rows()
    assert len(actual.learned) == (9 if fold is None else 6)
    learned = np.sort(
        np.concatenate([actual.learned, [] if actual.held is None else actual.drawn[actual.held]])
    ).astype(np.int64)
    table = labelled.features("train").matrix().numpy()[np.searchsorted(learned, actual.learned)]
    regression = LogisticRegression(C=1 / 10, max_iter=1000, tol=1e-8).fit(table, train.take(actual.learned).labels)
    answers = unpack(f"3.0.{'all' if fold is None else fold}", load_file(taught / FILE))
    expected = regression.predict_proba(labelled.features("labels").matrix().numpy())
    np.testing.assert_allclose(np.stack(answers), expected, atol=2e-3)


def test_the_teacher_of_a_fold_has_the_choices_without_its_rows(project, monkeypatch):
    """The way, the head and the end of training are chosen on the other folds, whatever is chosen on all."""
    job = project.teacher(method="auto", head_penalties=[1.0, 100.0], evaluations=2)
    (record,) = distillation.read_records(job.finetuned, start=job.start)
    ways = [("features", 1.0, 0), ("finetune", 100.0, 1), ("finetune", 1.0, 2)]
    by_fold = [{"way": way, "stop": stop, "penalty": penalty} for way, penalty, stop in ways]
    assert [each.keys() for each in record["by_fold"]] == [each.keys() for each in by_fold]
    monkeypatch.setattr(distillation, "read_records", lambda *_, **__: [record | {"by_fold": by_fold}])
    everything, *folds = (fit for (fit,) in distillation._labelling(job, texts=""))
    assert everything.fold is None and everything.settings.method == record["way"]
    actual = [(fit.settings.method, fit.head and fit.head.penalty, fit.stop) for fit in folds]
    assert actual == ways and [fit.fold for fit in folds] == [0, 1, 2]


def test_a_fold_of_a_student_learns_from_the_teacher_of_that_fold_only(project):
    """Fails if a fold reads the predictions of the run on all rows: these are other numbers."""
    job = project.student()
    texts = read_unlabelled(job.texts)
    fixed = {"3.0.all": [1.0, 0.0, 0.0], "3.0.0": [0.0, 1.0, 0.0], "3.0.1": [0.0, 0.0, 1.0], "3.0.2": [0.2, 0.3, 0.5]}
    write_predictions(job.taught / "bert-adapted", {name: [value] * len(texts) for name, value in fixed.items()})
    for fit in fits_of_student(job):
        actual = fit.rows()
        indices, answers = soft_labels_of(fit, texts, actual.left_out)
        name = "3.0.all" if fit.fold is None else f"3.0.{fit.fold}"
        np.testing.assert_allclose(answers, [fixed[name]] * len(indices), atol=1e-7)
        # The texts of the rows on which the fold is scored are not learned.
        left = {digest_of(texts[row]) for row in indices}
        of_fold = {*map(digest_of, actual.held_out.fields)}
        assert left == {*map(digest_of, texts)} - of_fold


def write_predictions(directory: Path, answers: dict[str, list[Any]]) -> None:
    with writing(directory, kind=KIND) as draft:
        tensors: dict[str, torch.Tensor] = {}
        for name, values in answers.items():
            tensors |= pack(name, [np.asarray(value, dtype=np.float32) for value in values])
        save_file(tensors, draft.path / FILE)
        draft.facts["teacher"] = directory.name


def test_predictions_of_several_teachers_are_averaged(tmp_path):
    write_predictions(tmp_path / "a", {"9.0.all": [[1.0, 0.0], [0.25, 0.75]]})
    write_predictions(tmp_path / "b", {"9.0.all": [[0.5, 0.5], [0.75, 0.25]]})
    actual = read_soft_labels([tmp_path / name / FILE for name in ("a", "b")], "9.0.all")
    np.testing.assert_allclose(actual, [[0.75, 0.25], [0.5, 0.5]])
    with pytest.raises(ArtifactError, match="has no predictions of the run 9.1.all; run the stage teach again"):
        read_soft_labels([tmp_path / "a" / FILE], "9.1.all")


def test_a_killed_teacher_ends_bit_identical(project, monkeypatch):
    job = project.teacher()
    # The end of the schedule, so that every run of the teacher is trained.
    records = [
        record | {"stop": 1, "by_fold": [each | {"stop": 1} for each in record["by_fold"]]}
        for record in records_of(job.finetuned)
    ]
    monkeypatch.setattr(distillation, "read_records", lambda *_, **__: records)
    taught = teach(job)
    again = with_checkpoints(
        job.model_copy(
            update={
                "output": project.folder / "again",
                "cluster": job.cluster.model_copy(update={"storage": str(project.folder / "store-again")}),
            }
        )
    )
    assert finish_interrupted(again, monkeypatch, every=2, stage=teach) > 2
    assert (again.output / FILE).read_bytes() == (taught / FILE).read_bytes()


def test_a_killed_student_ends_bit_identical(project, monkeypatch):
    teach(project.teacher())
    monkeypatch.setattr("components.learners.finetuning.execution._best", lambda candidates: candidates[-1])

    def job(name):
        return with_checkpoints(project.student("gpt", name=name))

    unbroken, broken = distil(job("unbroken")), job("broken")
    assert finish_interrupted(broken, monkeypatch, every=7, stage=distil) > 1
    assert contents(broken.output) == contents(unbroken)
    (record,) = records_of(unbroken)
    assert record["way"] == "distil" and record["best_step"]


def test_a_teacher_is_trained_again_as_briefly_as_it_was(project, monkeypatch):
    """`auto.minutes` had shortened one of its ways."""
    job = project.teacher()
    (record,) = distillation.read_records(job.finetuned, start=job.start)
    record["ways"] = [{"way": "finetune", "epochs": 0.5}, {"way": "features"}]
    monkeypatch.setattr(distillation, "read_records", lambda *_, **__: [record])
    trainings = [fit for (fit,) in distillation._labelling(job, texts="")]
    assert len(trainings) == 1 + len(record.get("by_fold", []))
    assert {fit.settings.epochs for fit in trainings if fit.settings.method == "finetune"} == {0.5}
    record["ways"] = []
    assert all(fit.settings.epochs == job.settings.epochs for (fit,) in distillation._labelling(job, texts=""))


def test_kinds_and_taggers_without_soft_predictions_are_refused(project):
    with pytest.raises(ConfigError, match=r"distil.small: things: kind questions has no predictions that a student"):
        distil(project.student("bert", "questions"))
    with pytest.raises(ConfigError, match=r"distil.small: things: tagger crf has no probabilities of the tags"):
        distil(project.student("bert", "tagging", tagger="crf"))
