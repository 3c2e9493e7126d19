"""Predictions in the forms of annotation tools, where a person corrects them. The texts of the input are a file that
`predict_parts` predicts, resumable and in several processes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from components.core.artifacts import digest_file, partial_path
from components.core.errors import ConfigError, DataError, nearest
from components.core.outputs import check_output, discard, named_output
from components.data.formats.annotations import CharSpan, PredictedRow
from components.data.formats.hub import WRITERS, check_written
from components.data.formats.rows import open_rows
from components.data.formats.words import spans_of, words_of
from components.learners.prediction import Predicted, refuse_inputs
from components.learners.writing import write_errors
from components.serving.parts import KIND, LoadableModel, PartOptions, predict_parts
from components.settings.detection import is_saved
from components.settings.formats import FORMATS
from components.settings.tasks import has

#: Kinds whose predictions all tools can show.
KINDS: Final = FORMATS["doccano"].kinds
_ROW, _TEXT, _BOUNDS, _WHERE = "_row", "_text", "_bounds", "_where"


def predict_annotations(
    source: Path, output: Path, *, model: LoadableModel, options: PartOptions, form: str, labelled: Sequence[str] = ()
) -> Predicted:
    """Predict the texts of `source` and write them with their predictions in the form of an annotation tool. `source`:
    csv, tsv, jsonl or parquet; tasks of Label Studio (.json), or a folder that `save_to_disk` has written. A text that
    is to be tagged is split into words as training data are. `labelled`: the column of the texts of the labelled data,
    which comes before `text`."""
    source, output, rejects = Path(source), Path(output), options.rejects
    check_written(form, output)
    if model.kind not in KINDS:
        raise ConfigError(
            f"{form}: cannot express predictions of a {model.kind} task; write csv, tsv, jsonl or parquet without "
            "--format"
        )
    texts, predicted = (output.with_name(f".{output.name}.{name}.jsonl") for name in ("texts", "predicted"))
    interface = output.with_suffix(".xml") if form == "label-studio" else None
    overwrite = options.overwrite or texts.exists()  # what an interrupted run has written
    for path in filter(None, (output, interface, rejects)):
        check_output(path, overwrite=overwrite)
    with write_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    tagging = has(model.kind, "words")
    names = _named(model.kind, options.columns) or [*labelled, "text", *["words"] * tagging]
    rows = _source_rows(source, options.form)
    _write_texts(texts, (_input(row, where, tagging=tagging, names=names) | {_WHERE: where} for where, row in rows))
    of_texts = replace(options, columns={}, form="", overwrite=True, every_output=True, origin=(source, _WHERE))
    done = predict_parts(texts, predicted, model=model, options=of_texts)
    if rejects is not None and rejects.exists():
        _restore_rejects(rejects)
    with write_errors(output):
        with named_output(output, kind=None if output.suffix else KIND, overwrite=overwrite) as draft:
            WRITERS[form](draft.path, _rows(predicted), model=model.name)
            if interface is not None:
                text = (made := draft.path.with_suffix(".xml")).read_text(encoding="utf-8")
                made.unlink()
                with named_output(interface, overwrite=overwrite) as second:
                    second.path.write_text(text, encoding="utf-8")
        texts.unlink()
        discard(predicted)
    return done


def _named(kind: str, given: Mapping[str, str]) -> list[str]:
    names = ("words", "text") if has(kind, "words") else ("text",)
    refuse_inputs(given, names)
    return [given[name] for name in names if name in given][:1]


def _write_texts(path: Path, lines: Iterator[dict[str, Any]]) -> None:
    """Write the inputs, unless the file of an interrupted run has the same content, whose parts are still valid."""
    with write_errors(path), partial_path(path) as partial:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, default=str) + "\n" for line in lines)
        if not path.exists() or digest_file(path) != digest_file(partial):
            partial.replace(path)


def _input(row: Mapping[str, Any], where: str, *, tagging: bool, names: Sequence[str]) -> dict[str, Any]:
    name = next((name for name in names if name in row), names[-1])
    if name not in row:
        raise DataError(f"{where}: no column {name!r}{nearest(name, list(row))}; name it with --column text=COLUMN")
    value = row[name]
    if tagging and isinstance(value, list) and all(isinstance(word, str) for word in value):
        bounds, position = [], 0
        for word in value:
            bounds.append((position, position + len(word)))
            position += len(word) + 1
        return {"words": value, _TEXT: " ".join(value), _BOUNDS: bounds, _ROW: row}
    if value is not None and not isinstance(value, str):
        raise DataError(f"{where}: {name!r} is {type(value).__name__}, expected text")
    if not tagging:
        return {"text": value, _TEXT: value or "", _ROW: row}
    bounds = words_of(value or "")
    return {
        "words": [(value or "")[start:end] for start, end in bounds],
        _TEXT: value or "",
        _BOUNDS: bounds,
        _ROW: row,
    }


def _source_rows(source: Path, form: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    saved = source.is_dir() and is_saved(source)
    if not saved and not source.is_file():
        raise DataError(f"{source}: " + ("is a folder, not a file" if source.is_dir() else "does not exist"))
    for where, row in open_rows(
        source, form="datasets" if saved else "json" if source.suffix == ".json" else form
    ).rows:
        # A task of Label Studio has its columns as a member.
        yield where, row["data"] if source.suffix == ".json" and isinstance(row.get("data"), dict) else row


def _restore_rejects(path: Path) -> None:
    """Replace the rows of the file of texts by those of the input."""
    with named_output(path, overwrite=True) as draft, path.open("rb") as file, draft.path.open("wb") as restored:
        for bad in map(json.loads, file):
            text = json.dumps({"reason": bad["reason"], "row": bad["row"][_ROW]}, ensure_ascii=False)
            restored.write(text.encode() + b"\n")


def _rows(path: Path) -> Iterator[PredictedRow]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield _predicted(json.loads(line))


def _predicted(row: Mapping[str, Any]) -> PredictedRow:
    common = {"row": row[_ROW], "text": row[_TEXT]}
    if _BOUNDS in row:
        bounds = [(start, end) for start, end in row[_BOUNDS]]
        spans = [(span["start"], span["end"], span["type"]) for span in row["spans"] or ()]
        if not spans:
            # Tags that mark no spans, such as parts of speech, are one span per word.
            tags = list(enumerate(row["tags"] or ()))
            spans = [(index, index + 1, tag) for index, tag in tags if tag != "O" and "-" not in tag]
        return PredictedRow(**common, spans=[CharSpan(*span) for span in spans_of(bounds, spans)], tokens=bounds)
    shares = row["probabilities"] or {}
    bounds = words_of(row[_TEXT])
    if "labels" in row:
        sure = [max(share, 1 - share) for share in shares.values()]
        score = min(sure) if sure else None
        return PredictedRow(**common, labels=row["labels"] or [], score=score, shares=shares, tokens=bounds)
    labels = [] if row["label"] is None else [row["label"]]
    return PredictedRow(**common, labels=labels, score=row["confidence"], shares=shares, tokens=bounds)
