"""Students that learn the predictions of teachers."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression

from components.core.artifacts import json_of, read_manifest, writing
from components.core.errors import ArtifactError, ConfigError
from components.data.ingestion.unlabelled import UnlabelledJob, unlabelled
from components.data.tasks.examples import ExamplesJob, examples, read_split
from components.data.tasks.results import KIND as FINETUNED
from components.data.unlabelled_texts import FILE, digest_of, read_unlabelled
from components.data.unlabelled_texts import KIND as UNLABELLED
from components.learners.finetuning import runs, stage
from components.learners.finetuning.fit import FinetuneJob, labels_file, pack, unpack
from components.learners.finetuning.runs import Member, Run, load_initial_encoder, read_soft_labels
from components.learners.finetuning.stage import finetune, fits_of
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.learners.task_models.sampler import matrix
from components.learners.ways.finetune import Finetune
from components.settings import contrastive
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl
from tests.finetuning.interruption import answers_of, contents, finish_interrupted, records_of, with_checkpoints

IMITATING = sorted(kind for kind, task in TASKS.items() if task.imitates)
SMALL = labels_file("small")
#: Rows of a budget, with at least one of each class in every fold.
BUDGETS = {"classification": 3, "pair": 3}


class Project:
    """A teacher and a student with few labels, and texts without labels."""

    def __init__(self, make_job: Callable[..., FinetuneJob], folder: Path) -> None:
        self.make_job, self.folder = make_job, folder

    def job(
        self, family: str, kind: str, selection: str, name: str, changes: dict[str, Any]
    ) -> tuple[FinetuneJob, Path]:
        """A job of fine-tuning, and the texts of the group."""
        made, texts = (self.folder / f"{of}-{kind}-{selection}" for of in ("few-examples", "texts"))
        if not made.exists():
            data = self.folder / f"few-{kind}"
            for split, count, offset in (("train", 10, 0), ("dev", 2, 100), ("test", 2, 200)):
                write_jsonl(data / f"{split}.jsonl", [ROWS[kind](row) for row in rows(count, offset=offset)])
            keys = {"budgets": [BUDGETS.get(kind, 9)], "seeds": [0], "selection": selection, "folds": 3}
            source = TaskSource(path=str(data), kind=kind, **keys)
            examples(ExamplesJob(task="things", source=source, output=made))
            given = {"task": "things", "key": "distil.small", "examples": made, "corpus": self.folder}
            unlabelled(UnlabelledJob(**given, which="task", rows=20, output=texts))
        job = self.make_job(family, kind, name=name, **changes)
        return job.model_copy(update={"examples": made}), texts

    def teacher(self, kind: str = "classification", selection: str = "budget", **changes: Any) -> FinetuneJob:
        """The job of a teacher."""
        job, texts = self.job("bert", kind, selection, f"teacher-{kind}-{selection}", changes)
        return job.model_copy(update={"labelled": {"small": texts}})

    def student(
        self, family: str = "word2vec", kind: str = "classification", selection: str = "budget", **changes: Any
    ) -> FinetuneJob:
        """The job of a student."""
        job, texts = self.job(family, kind, selection, changes.pop("name", f"student-{family}"), changes)
        teachers = {"bert-adapted": self.folder / f"teacher-{kind}-{selection}"}
        given = {"group": "small", "texts": texts, "teachers": teachers, "start": "adapted-from-small"}
        return job.model_copy(update=given)


@pytest.fixture
def project(make_job, in_process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    monkeypatch.setattr("components.learners.ways.distil.EPOCHS", 16)
    return Project(make_job, tmp_path)


@pytest.fixture
def last_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way with teachers is kept, to see that its predictions are served."""
    monkeypatch.setattr("components.learners.finetuning.execution._best", lambda candidates: candidates[-1])


@pytest.mark.parametrize(
    ("kind", "selection", "family"),
    [
        *(
            (kind, "budget", family)
            for kind, family in zip(IMITATING, cycle(["word2vec", "bert", "elmo"]), strict=False)
        ),
        ("tagging", "dev", "word2vec"),
    ],
)
def test_every_kind_with_soft_predictions_is_distilled(kind, selection, family, project, last_way):
    teacher = project.teacher(kind, selection)
    tensors = load_file(finetune(teacher) / SMALL)
    names, budget = {name for name in tensors if not name.endswith(".lengths")}, BUDGETS.get(kind, 9)
    assert names == {f"{budget}.0.{fold}" for fold in (["all", 0, 1, 2] if selection == "budget" else ["all"])}
    texts = read_unlabelled(teacher.labelled["small"])
    for name in names:
        actual = unpack(name, tensors)
        assert len(actual) == len(texts) == 20
        if kind in ("classification", "pair", "choice"):
            np.testing.assert_allclose([answer.sum() for answer in actual], 1, atol=1e-5)
        if kind == "tagging":
            tags = len(json_of(teacher.examples / "labels.json"))
            assert [len(answer) for answer in actual] == [len(words) * tags for words in texts]
    job = project.student(family, kind, selection)
    (record,) = records_of(output := finetune(job))
    assert record["way"] == "distil" and record["curve"][-1]["step"] == 5
    assert [way["way"] for way in record["ways"]] == ["finetune", "distil"]
    assert read_manifest(output).facts["system"] == f"{family}-adapted-from-small"
    served = load_classifier(output / "classifier").answer(read_split(job.examples, "test").fields)
    for answer, stored in zip(served, answers_of(output, "test"), strict=True):
        np.testing.assert_array_equal(answer, np.asarray(stored, dtype=np.float32))


@pytest.mark.parametrize("fold", [1, None])
def test_the_teacher_of_a_fold_has_learned_from_the_rows_outside_it(fold, project):
    """Compared with scikit-learn's regression on exactly these rows."""
    job = project.teacher(method="features", head_steps=1000, head_norm="none", head_penalties=[10.0])
    taught = finetune(job)
    (whole,) = fits_of(job, job.settings)
    labelled = replace(whole, fold=fold, folds=3)
    train, actual = read_split(job.examples, "train"), labelled.rows()
    assert len(actual.learned) == (9 if fold is None else 6)
    table = matrix(labelled.features("train")).numpy()[np.searchsorted(actual.drawn, actual.learned)]
    regression = LogisticRegression(C=1 / 10, max_iter=1000, tol=1e-8).fit(table, train.take(actual.learned).labels)
    answers = unpack(labelled.name, load_file(taught / SMALL))
    expected = regression.predict_proba(matrix(labelled.features("labels")).numpy())
    np.testing.assert_allclose(np.stack(answers), expected, atol=2e-3)


def test_the_teacher_of_a_fold_has_the_choices_without_its_rows(project, monkeypatch):
    """The way and the end of training are chosen on the other folds, whatever is chosen on all."""
    monkeypatch.setattr(Finetune, "least_rows", 0)
    monkeypatch.setattr(contrastive, "ROWS", 6)
    ways, real = [("features", 0), ("finetune", 1), ("contrastive", 1)], runs.labels_of

    def labels_of(fit, by_fold, fits):
        assert [each.keys() for each in by_fold] == [{"way", "stop", "penalty"}] * 3
        labels = real(fit, [{"way": way, "stop": stop} for way, stop in ways], fits)
        for fold, (way, stop) in enumerate(ways):
            tensors, _ = runs.result(replace(fits[way], fold=fold))
            np.testing.assert_array_equal(labels[f"3.0.{fold}"], unpack(f"at.{stop}.labels", tensors))
            # Each evaluation has its own predictions.
            assert way != "finetune" or not np.array_equal(labels[f"3.0.{fold}"], unpack("at.2.labels", tensors))
        return labels

    monkeypatch.setattr(stage, "labels_of", labels_of)
    (record,) = records_of(finetune(project.teacher(method="auto", evaluations=2)))
    assert [way["way"] for way in record["ways"]] == ["features", "contrastive", "finetune"]


def test_a_teacher_is_trained_once(project, monkeypatch):
    """As often as without students, and by no student."""
    trained = list[str]()
    real = Run.train

    def train(self, store):
        trained.append(self.fits[0].job.family)
        return real(self, store)

    monkeypatch.setattr(Run, "train", train)
    teacher = project.teacher(method="finetune")
    finetune(teacher)
    alone = trained.copy()
    assert alone == ["bert"] * 4, "three folds, and all rows"
    trained.clear()
    plain = {"labelled": {}, "output": project.folder / "plain"}
    finetune(teacher.model_copy(update=plain))
    assert trained == alone
    assert contents(project.folder / "plain") == contents(teacher.output), "the model is the same"
    trained.clear()
    finetune(project.student())
    assert set(trained) == {"word2vec"}


def test_a_fold_of_a_student_learns_from_the_teacher_of_that_fold_only(project):
    """Fails if a fold reads the predictions of the run on all rows: these are other numbers."""
    job = project.student()
    texts = read_unlabelled(job.texts)
    fixed = {"3.0.all": [1.0, 0.0, 0.0], "3.0.0": [0.0, 1.0, 0.0], "3.0.1": [0.0, 0.0, 1.0], "3.0.2": [0.2, 0.3, 0.5]}
    write_predictions(job.teachers["bert-adapted"], {name: [value] * len(texts) for name, value in fixed.items()})
    (whole,) = fits_of(job, job.settings.model_copy(update={"method": "distil"}))
    for fit in (replace(whole, stop=1), *(replace(whole, fold=fold, folds=3) for fold in range(3))):
        member = Member(fit, *load_initial_encoder(fit))
        encoded, answers = member.taught
        # The texts of the rows on which the fold is scored are not learned.
        held = set() if fit.fold is None else {*map(digest_of, member.rows.held_out.fields)}
        left = [fields for fields in texts if digest_of(fields) not in held]
        assert [row.pieces[0].tolist() for row in encoded] == [
            row.pieces[0].tolist() for row in member.model.encode(left, member.tokenizer)
        ]
        np.testing.assert_allclose(answers, [fixed[fit.name]] * len(left), atol=1e-7)


def write_predictions(directory: Path, answers: dict[str, list[Any]]) -> None:
    with writing(directory, kind=FINETUNED) as draft:
        tensors: dict[str, torch.Tensor] = {}
        for name, values in answers.items():
            tensors |= pack(name, [np.asarray(value, dtype=np.float32) for value in values])
        save_file(tensors, draft.path / SMALL)


def test_predictions_of_several_teachers_are_averaged(project):
    write_predictions(project.folder / "a", {"3.0.all": [[1.0, 0.0], [0.25, 0.75]]})
    write_predictions(project.folder / "b", {"3.0.all": [[0.5, 0.5], [0.75, 0.25]]})
    job = project.student().model_copy(update={"teachers": {name: project.folder / name for name in "ab"}})
    (fit,) = fits_of(job, job.settings.model_copy(update={"method": "distil"}))
    np.testing.assert_allclose(read_soft_labels(fit), [[0.75, 0.25], [0.5, 0.5]])
    with pytest.raises(ArtifactError, match="has no predictions of the run 3.1.all; run the stage finetune again"):
        read_soft_labels(replace(fit, seed=1))


def test_the_texts_of_each_group_have_their_predictions(project):
    job = project.teacher()
    few, many = project.folder / "few", job.labelled["small"]
    with writing(few, kind=UNLABELLED) as draft:
        pq.write_table(pq.read_table(many / FILE).slice(5, 3), draft.path / FILE)
        draft.facts["rows"] = 3
    output = finetune(job.model_copy(update={"labelled": {"few": few, "small": many}}))
    of_few, of_small = (load_file(output / labels_file(group)) for group in ("few", "small"))
    assert of_few.keys() == of_small.keys()
    for name in (name for name in of_few if not name.endswith(".lengths")):
        np.testing.assert_array_equal(unpack(name, of_few), unpack(name, of_small)[5:8])


def test_a_killed_teacher_ends_bit_identical(project, monkeypatch):
    job = project.teacher(method="finetune", evaluations=2, epochs=4)
    taught = finetune(job)
    cluster = job.cluster.model_copy(update={"storage": str(project.folder / "store-again")})
    again = with_checkpoints(job.model_copy(update={"output": project.folder / "again", "cluster": cluster}))
    assert finish_interrupted(again, monkeypatch, every=2) > 2
    assert (again.output / SMALL).read_bytes() == (taught / SMALL).read_bytes()


def test_a_killed_student_ends_bit_identical(project, monkeypatch, last_way):
    finetune(project.teacher())
    unbroken, broken = (with_checkpoints(project.student("gpt", name=name)) for name in ("unbroken", "broken"))
    finetune(unbroken)
    assert finish_interrupted(broken, monkeypatch, every=7) > 1
    assert contents(broken.output) == contents(unbroken.output)
    (record,) = records_of(unbroken.output)
    assert record["way"] == "distil" and record["best_step"]


def test_kinds_and_taggers_without_soft_predictions_are_refused(project):
    with pytest.raises(ConfigError, match=r"distil.small: things: kind questions has no predictions that a student"):
        finetune(project.student("bert", "questions"))
    with pytest.raises(ConfigError, match=r"distil.small: things: tagger crf has no probabilities of the tags"):
        finetune(project.student("bert", "tagging", tagger="crf"))
