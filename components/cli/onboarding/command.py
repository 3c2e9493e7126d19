"""`headstart init`: inspect labelled data, write params.yaml."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from components.cli.common import NEXT, InitOptions
from components.cli.onboarding.inspection import Facts, inspect
from components.cli.onboarding.project import holds_lines, take_files, take_lines
from components.cli.onboarding.proposal import Proposal, block_name, names_of, own_tokens
from components.cli.onboarding.repository import PARAMS, commit_project, make_project
from components.cli.onboarding.splits import split_files
from components.core import threads
from components.core.errors import ConfigError, DataError
from components.core.outputs import check_output, write_named
from components.core.processors import cores
from components.data.formats.lines import Reading
from components.data.formats.tables import Layout
from components.data.ingestion.readers import TEXT, form_for, raw_files, read_texts
from components.data.sampling import Rows, read_rows
from components.data.tasks.kinds import find_kind
from components.data.tasks.reading.records import is_blank, is_no_number, label_text, labels_in, merged_numbers
from components.data.understanding import text_column, understand
from components.pipeline.dvc_yaml import refuse_other_pipeline, write_dvc_yaml
from components.settings.data import CorpusSource
from components.settings.formats import is_table
from components.settings.loading import load_params
from components.settings.tasks import KINDS, TaskSource

if TYPE_CHECKING:
    from components.cli.onboarding.starts import Measured


@dataclass
class _Text:
    """Text without labels: its source, the number of its characters, and where its lines are written as rows."""

    path: Path
    source: CorpusSource
    characters: int
    lines: Path | None = None


def init(options: InitOptions, *, root: Path) -> list[str]:
    """Write params.yaml below `root`, and what a project needs; returns what was found and written, in words.

    Raises:
        ArtifactError: params.yaml, or a copy of data, exists and may not be replaced
            (`components.core.outputs.check_output`).
        ConfigError: a start does not exist, or the folder has another pipeline.
        DataError: the labelled files are invalid, or nothing looks like a text or a label.
    """
    check_output(root / PARAMS, overwrite=options.overwrite)
    refuse_other_pipeline(root)
    files = split_files(options.labelled)
    named = options.labelled if options.labelled.is_dir() else files["train"]
    name = block_name(options.name or named.name.partition(".")[0])
    samples = {split: read_rows(file, Layout(**options.reading)) for split, file in files.items()}
    rows = samples["train"]
    try:
        text = options.text.split(",") if options.text else ()
        meant = understand(rows, text=text, label=options.label or None, kind=options.kind or None)
    except DataError as error:
        raise _for_user(error, where=files["train"]) from error
    keys = _keys(meant.keys, rows, files["train"], options)
    without = _without_labels(samples, keys)
    left_out = [f"warning: {files[split].name} {why}" for split, why in without.items()]
    files = {split: file for split, file in files.items() if split not in without}
    keys, grouped = _with_group(keys, meant.group, [samples[split] for split in files], options)
    # Checked before anything is written.
    source = _source(name, keys, files)
    facts = _inspected(name, source, language=options.language)
    texts = [_text(path.resolve(), like=keys.get("text"), root=root) for path in options.unlabelled]
    measured = _measured(options, source, name)
    start = _best(measured)
    said = _starts_in_words(measured, start) if measured or texts else [_advice(facts)]
    made = make_project(root)
    path, within = take_files(files, name=name, root=root)
    task = {"path": path} | _block(keys, facts, within)
    proposal = Proposal(name, task, facts, start=start, minutes=options.minutes, others=meant.others)
    proposal.unlabelled = [_take(text, texts[:number], root=root) for number, text in enumerate(texts)]
    if start is None and texts:
        from components.cli.onboarding.starts import own_speed

        threads.use(cores())
        proposal.speed = own_speed()
        characters = sum(text.characters for text in texts)
        proposal.own_tokens = own_tokens(characters, speed=proposal.speed, minutes=options.minutes)
    content = proposal.text()
    write_named(root / PARAMS, content, overwrite=options.overwrite)
    write_dvc_yaml(load_params(root / PARAMS), root / PARAMS)
    commit_project(root)
    return [
        f"{options.labelled}: {facts.lines()[0]}",
        *rows.read,
        *facts.lines()[1:],
        *(meant.reasons if not options.scheme else ()),
        *grouped,
        *left_out,
        *(_text_in_words(text, root=root) for text in texts),
        *said,
        *([f"copied to {path}"] if not named.resolve().is_relative_to((root / path).resolve()) else []),
        *([f"made {', '.join(made)}"] if made else []),
        f"wrote {PARAMS} ({len(content.splitlines())} lines); the first run takes about "
        f"{proposal.expected_minutes:.0f} minutes",
        f"{NEXT} headstart check, headstart fit; change what was guessed wrongly in params.yaml",
    ]


def _keys(keys: dict[str, Any], rows: Rows, file: Path, options: InitOptions) -> dict[str, Any]:
    """Keys of the task, with those of the options."""
    if options.group and options.group not in rows.columns:
        raise DataError(f"{file}: no column {options.group!r}; the columns are {', '.join(rows.columns)}")
    keys = keys | ({"label_separator": options.label_separator} if options.label_separator else {})
    keys |= {"scheme": options.scheme} if options.scheme else {}
    try:
        by_suffix = TaskSource(path=".", kind=keys["kind"]).format_of(file.name)
    except ValueError:
        by_suffix = None
    if rows.format == "label-first":
        keys = {"kind": keys["kind"]}
    keys |= {} if is_table(rows.format) and rows.format == by_suffix else {"format": rows.format}
    return keys | options.reading


def _without_labels(samples: Mapping[str, Rows], keys: Mapping[str, Any]) -> dict[str, str]:
    """Split -> why it has no labels, of dev and test."""
    label = keys.get("label", keys.get("score"))
    if label is None or keys["kind"] == "multilabel":
        return {}
    given = {
        split: {_class_name(row[label]) for row in rows.rows if not is_blank(row.get(label))}
        for split, rows in samples.items()
    }
    same = merged_numbers(name for names in given.values() for name in names)
    given = {split: {same.get(name, name) for name in names} for split, names in given.items()}
    reasons = {}
    for split in (split for split in samples if split != "train"):
        if label not in samples[split].columns:
            reasons[split] = f"has no column {label!r} (columns: {', '.join(samples[split].columns)})"
        elif not given[split]:
            reasons[split] = f"has no label in column {label!r}"
        elif keys["kind"] in ("classification", "pair") and not given["train"] & given[split]:
            reasons[split] = f"has no label of train in column {label!r} ({min(given[split])!r})"
    return {
        split: f"{why}; it is left out, its rows can be predicted (headstart predict)" for split, why in reasons.items()
    }


def _class_name(value: Any) -> str:
    listed = labels_in(value)
    value = listed[0] if listed and len(listed) == 1 else value
    return label_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _with_group(
    keys: dict[str, Any], proposed: tuple[str, str] | None, samples: Sequence[Rows], options: InitOptions
) -> tuple[dict[str, Any], list[str]]:
    """Add what is done with rows without a label, and the group; with the column of the group and why, in words."""
    label = keys.get("label", keys.get("score", "label"))
    if options.no_label:
        keys = keys | {"no_label": options.no_label}
    elif "no_label" in KINDS[keys["kind"]] and any(
        is_blank(row.get(label)) or ("score" in keys and is_no_number(row.get(label)))
        for rows in samples
        for row in rows.rows
    ):
        keys = keys | {"no_label": "drop"}
    if options.group:
        return keys | {"group": options.group}, [f"column {options.group!r} is the group (--group)"]
    if proposed is None or any(proposed[0] not in rows.columns for rows in samples):
        return keys, []
    name, why = proposed
    return keys | {"group": name}, [f"{why} (--group names another column, group: null means none)"]


def _block(keys: Mapping[str, Any], facts: Facts, files: Mapping[str, str]) -> dict[str, Any]:
    """Keys of `data.tasks.<name>` below its path, in the order in which they are written."""
    split = {split: files.get(split) for split in ("train", "dev", "test") if split in files or split != "dev"}
    block = {"kind": facts.kind} | split | {key: value for key, value in keys.items() if key != "kind"}
    block |= {"language": facts.language} if facts.language != "en" else {}
    return block | ({"empty": "drop"} if facts.empty else {})


def _inspected(name: str, source: TaskSource, *, language: str | None) -> Facts:
    try:
        facts = inspect(name, source)
    except DataError as error:
        raise _for_user(error) from error
    return replace(facts, language=language) if language else facts


#: Keys of params.yaml in messages, which a user of `init` does not have yet -> the flag that sets them.
_FLAGS: Final = {
    **dict.fromkeys(("label", "score", "tags"), "--label"),
    "text": "--text",
    "yaml": "--text or --label",
    "delimiter": "--delimiter",
    "no_label": "--no-label",
}


def _for_user(error: DataError, *, where: object = None) -> DataError:
    """An error that names flags, not keys."""
    where = "" if where is None and error.where == error.key else where

    def flag(key: str) -> str:
        name = key.rpartition(".")[2]
        return _FLAGS.get(name, name)

    return DataError(error.said(flag, where=where))


def _source(name: str, keys: dict[str, Any], files: Mapping[str, Path]) -> TaskSource:
    """The task as a run reads it, with rows without text dropped."""
    parents = {file.parent for file in files.values()}
    if len(parents) > 1:
        raise DataError(f"the splits are in different folders: {', '.join(map(str, parents))}; put them into one")
    given = {"path": str(parents.pop()), "dev": None, "test": None}
    given |= keys | {split: file.name for split, file in files.items()}
    if given.get("format") not in ("conll", "conllu", "squad") and given["kind"] != "questions":
        given["empty"] = "drop"
    try:
        return TaskSource.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"data.tasks.{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def _best(measured: Sequence[Measured]) -> Measured | None:
    return max(measured, key=lambda start: -math.inf if math.isnan(start.logme) else start.logme, default=None)


def _measured(options: InitOptions, source: TaskSource, name: str) -> list[Measured]:
    if not options.start:
        return []
    from components.cli.onboarding.starts import measure

    threads.use(cores())
    examples, blocks = find_kind(source.kind).read(name, source), names_of(options.start)
    alone = len(options.start) == 1
    return [measure(start, examples, source=source, name=blocks[start], alone=alone) for start in options.start]


def _text(path: Path, *, like: str | None, root: Path) -> _Text:
    """Read text without labels, and guess its column."""
    files = raw_files(path)[0]
    column = "text"
    if form_for(files[0]) != TEXT:
        column = text_column(read_rows(files[0]), like=like)
    source = CorpusSource(path=_relative(path, root), text=column)
    characters = sum(len(text) for file in files for _, text, _ in read_texts(file, source, Reading()))
    return _Text(path, source, characters)


def _take(text: _Text, before: Sequence[_Text], *, root: Path) -> str | dict[str, str]:
    """An entry of `data.unlabelled`. A list of texts is written as rows, under another name than those `before` it."""
    if holds_lines(text.path):
        name, taken = text.path.stem, {other.lines.stem for other in before if other.lines is not None}
        while name in taken:
            name += "-2"
        text.lines = take_lines(text.path, name=name, root=root)
        return _relative(text.lines, root)
    source = text.source
    return source.path if source.text == "text" else {"path": source.path, "text": source.text}


def _text_in_words(text: _Text, *, root: Path) -> str:
    written = "" if text.lines is None else f"; one text a line, written to {_relative(text.lines, root)}"
    return f"{text.source.path}: {text.characters:,} characters without labels{written}"


def _starts_in_words(measured: Sequence[Measured], start: Measured | None) -> list[str]:
    """Size, speed and evidence of the encoders, and what the chosen one reads of the texts."""
    lines = []
    for each in measured:
        speed = f"{each.texts_per_second:,.0f} texts and {each.tokens_per_second:,.0f} tokens a second on this machine"
        evidence = "" if math.isnan(each.logme) else f", LogME {each.logme:.3f}"
        chosen = "; chosen" if each is start and len(measured) > 1 else ""
        lines.append(f"start {each.name}: {each.parameters / 1e6:.1f} M parameters, {speed}{evidence}{chosen}")
    lines += [f"warning: {each.warning}" for each in measured if each.warning]
    if start is not None and (reading := start.reading).chunk is not None:
        lines.append(f"long texts are read in windows of {reading.chunk} pieces")
    if start is not None and (reading := start.reading).cut:
        lines.append(f"warning: {reading.cut:.1%} of the texts have more than {reading.max_length} pieces and are cut")
    return lines


def _advice(facts: Facts) -> str:
    from components.interchange.starts.registry import advice

    # params.yaml is written by then.
    return advice(facts.language, use="this command again with --overwrite --start {}")


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else path.as_posix()
