"""A model as it is used from Python: DataFrame in, DataFrame out."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from components.core import threads
from components.core.artifacts import MANIFEST, json_of, read_manifest, write_json, writing
from components.core.outputs import named_output
from components.core.processors import cores
from components.data.tasks.data import Fields
from components.data.tasks.kinds import find_kind
from components.data.tasks.task_io import TaskIO
from components.learners.abstention import abstaining, threshold_of
from components.learners.loading import load_model
from components.learners.prediction import Classifier, columns_in, input_columns, io_of, predict_rows
from components.learners.words.classifier import FORM, form_of
from headstart.report import Report
from headstart.tables import Data, InputError, Table, parsed, path_of, read_table

KIND: Final = "classifier"
#: File of a saved model with the names of its columns, the values of its classes, and the report.
DESCRIPTION: Final = "headstart.json"
#: Prefix of the columns of probabilities.
PROBABILITY: Final = "probability_"


class Model:
    """A fitted or loaded model.

    Args:
        directory: complete directory of a classifier; it is copied.
        columns: key of `data.tasks.<name>`, such as an input -> column of the labelled data, which is that of a
            DataFrame if this has it; None: as saved, else the names of the inputs.
        classes: name of a label -> its value in the labelled data.
        report: of the fit.

    Attributes:
        kind: of the task.
        labels: names of the labels, in the order of the columns of `predict_proba`.
        classes: the labels as in the labelled data (numbers stay numbers), in the same order.
        report: what was tried in the fit; None for models that were trained otherwise.

    Raises:
        ArtifactError: the directory is incomplete or altered.
    """

    def __init__(
        self,
        directory: Path,
        *,
        columns: Mapping[str, str] | None = None,
        classes: Mapping[str, Any] | None = None,
        report: Report | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headstart-model-")
        described = _copy(Path(directory), self._directory)
        self._classifier = self._loaded()
        self._columns = dict(columns if columns is not None else described.get("columns", {}))
        self._values = dict(classes if classes is not None else described.get("classes", {}))
        saved = described.get("report")
        self.report = report or (saved and Report.of(saved))

    @property
    def kind(self) -> str:
        """The kind of the task."""
        return self._classifier.kind

    @property
    def labels(self) -> list[str]:
        """Names of the labels."""
        return list(self._classifier.labels)

    @property
    def classes(self) -> list[Any]:
        """The labels as in the labelled data."""
        return [self._values.get(label, label) for label in self.labels]

    def predict(self, data: Data, *, error: float | None = None) -> pd.DataFrame:
        """The predictions, in the order of the rows and with the index of a DataFrame.

        Args:
            data: a DataFrame, the path of a file, or a list: of texts, of pairs of texts, or of lists of words.
            error: allowed share of wrong answers, such as 0.05. The column `abstained` marks the rows whose confidence
                is too low, and those that are unlike the training texts, which are also marked in `out_of_domain`.
                None: no such columns.

        Returns:
            For one label: `label`, `confidence`, and `probability_CLASS` for each class. For several labels: `labels`
            and the probabilities. For numbers `value`; for tagging `tags` and `spans`. A row whose text is missing has
            missing values.

        Raises:
            InputError: a column is missing, or a value is no text (row and column).
            ConfigError: the model has no thresholds for `error`.
        """
        (table, fields), classifier = self._parsed(data), self._classifier
        if error is not None:
            try:
                threshold = threshold_of(self._directory, error, what="the model")
            except TypeError as wrong:
                raise InputError(f"error: {error!r:.60}; give a number above 0 and below 1, such as 0.05") from wrong
            classifier = abstaining(classifier, self._directory, threshold)
        outputs = io_of(classifier).outputs
        shares = [f"{PROBABILITY}{label}" for label in self.labels]
        names = [each for name, kind in outputs.items() for each in (shares if kind == "shares" else [name])]
        collected = predict_rows(classifier, fields)
        rows = [dict.fromkeys(names) if answer is None else self._row(answer, outputs) for answer in collected]
        return pd.DataFrame(rows, columns=names, index=table.index)

    def predict_proba(self, data: Data) -> NDArray[np.float64]:
        """(N, C) probabilities of the labels, in the order of `classes`.

        Raises:
            InputError: as `predict`; a text is missing; or the kind of task has no probabilities.
        """
        if "shares" not in self._io.outputs.values():
            raise InputError(f"predict_proba: a model of kind {self.kind} has no probabilities; use predict")
        return np.asarray(self.answers(data), dtype=np.float64).reshape(-1, len(self.labels))

    def answers(self, data: Data) -> list[NDArray[np.float32]]:
        """The answers to N rows, in the form of `components.data.tasks.data.Answer`.

        Raises:
            InputError: as `predict`; or a text is missing.
        """
        table, fields = self._parsed(data)
        complete = []
        for number, parts in enumerate(fields):
            if parts is None:
                raise InputError(f"{table.place(number)}: the text is missing; fill it in, or use Model.predict")
            complete.append(parts)
        return list(self._classifier.answer(complete)) if complete else []

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model as a folder, which `load` reads.

        Args:
            folder: new or empty.
            overwrite: whether to replace a folder that Headstart has written, and in which nothing has changed since.

        Raises:
            ArtifactError: the folder exists and may not be replaced.
        """
        folder, source = path_of("folder", folder), self._directory
        described = {
            "columns": self._columns,
            "classes": self._values,
            "report": None if self.report is None else self.report.as_dict(),
        }
        with named_output(folder, kind=KIND, overwrite=overwrite) as draft:
            draft.facts.update(read_manifest(source, kind=KIND).facts)
            shutil.copytree(source, draft.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
            write_json(draft.path / DESCRIPTION, described, sort_keys=False, ensure_ascii=False)
        return folder

    @property
    def _directory(self) -> Path:
        return Path(self._folder.name) / "model"

    @property
    def _io(self) -> TaskIO:
        return find_kind(self.kind).io

    def _loaded(self) -> Classifier:
        if form_of(self._directory) != FORM:
            threads.use(cores())  # as in `headstart serve`
        return load_model(self._directory)

    def _parsed(self, data: Data) -> tuple[Table, list[Fields | None]]:
        """The rows, and the inputs of the task. A table with one column, or one column of text, need not name it."""
        labelled = input_columns(self.kind, self._columns)
        table = read_table(data, {*labelled, *labelled.values()}, self.labels)
        columns = columns_in(table.columns, labelled) if table.is_named else {}
        if len(columns) == 1 and table.columns.keys().isdisjoint(columns.values()):
            texts = [name for name, values in table.columns.items() if any(isinstance(entry, str) for entry in values)]
            if len(texts) == 1:
                columns = dict.fromkeys(columns, texts[0])
        return table, parsed(table, self._io, columns)

    def _row(self, answer: Mapping[str, Any], outputs: Mapping[str, str]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, kind in outputs.items():
            value = answer[name]
            if kind == "shares":
                row |= {f"{PROBABILITY}{label}": share for label, share in value.items()}
            elif name == "label":
                row[name] = self._values.get(value, value)
            elif name in ("labels", "tags"):
                row[name] = [self._values.get(label, label) for label in value]
            else:
                row[name] = value
        return row

    def __repr__(self) -> str:
        what = f"{len(self.labels)} labels" if self.labels else "numbers"
        best = "" if self.report is None else f", {self.report.chosen}"
        return f"Model({self.kind}, {what}{best})"

    def __getstate__(self) -> dict[str, Any]:
        root = self._directory
        files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        return {"files": files, "columns": self._columns, "values": self._values, "report": self.report}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headstart-model-")
        for name, content in state["files"].items():
            path = self._directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._columns, self._values, self.report = state["columns"], state["values"], state["report"]
        self._classifier = self._loaded()


def _copy(source: Path, target: Path) -> dict[str, Any]:
    """Copy a complete directory without the description of a saved model, which is returned."""
    facts = read_manifest(source, kind=KIND, verify=True)
    described: dict[str, Any] = {}
    with writing(target, kind=KIND) as draft:
        draft.facts.update(facts.facts)
        for name in facts.files:
            if name == DESCRIPTION:
                described = json_of(source / name)
                continue
            path = draft.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, path)
    return described
