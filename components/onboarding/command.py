"""`headstart init`: inspect labelled data, write params.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from components.errors import ConfigError, DataError
from components.formats.lines import Reading
from components.ingestion.readers import raw_files, read_text, read_texts, reader_for
from components.onboarding import columns, starts
from components.onboarding.files import Rows, read_rows
from components.onboarding.inspection import inspect
from components.onboarding.project import NEXT, PARAMS, holds_lines, make_project, take_files, take_lines
from components.onboarding.proposal import Proposal, block_name, names_of, own_tokens
from components.onboarding.splits import split_files
from components.outputs import check_output, write_named
from components.settings.data import CorpusSource
from components.settings.finetune import FIRST_MINUTES
from components.settings.loading import load_params
from components.settings.names import WITH_WORDS
from components.settings.tasks import TaskSource
from components.task_models.reading import Extent
from components.tasks.kinds import find_kind

#: Share of unknown pieces from which an encoder is no model of the language.
UNKNOWN_SHARE: Final = 0.1


@dataclass(frozen=True)
class Options:
    """What the flags of `init` say; None: guessed.

    Attributes:
        labelled: file or folder.
        unlabelled: files or folders of text without labels.
        starts: folders or names of encoders.
        name, kind, text, label, group, language: of the task.
        minutes: limit of training.
        overwrite: whether a params.yaml that `init` has written is replaced.
    """

    labelled: Path
    unlabelled: Sequence[Path] = ()
    starts: Sequence[str] = ()
    name: str | None = None
    kind: str | None = None
    text: str | None = None
    label: str | None = None
    group: str | None = None
    language: str | None = None
    minutes: float = FIRST_MINUTES
    overwrite: bool = False


def init(options: Options, *, root: Path) -> list[str]:
    """Write params.yaml below `root`, and what a project needs; returns what was found and written, in words.

    Raises:
        ArtifactError: params.yaml, or a copy of data, exists and may not be replaced
            (`components.outputs.check_output`).
        ConfigError: a start does not exist.
        DataError: the labelled files are invalid, or nothing looks like a text or a label.
    """
    params = root / PARAMS
    check_output(params, overwrite=options.overwrite)
    files = split_files(options.labelled)
    named = options.labelled if options.labelled.is_dir() else files["train"]
    name = block_name(options.name or named.name.partition(".")[0])
    rows = read_rows(files["train"])
    keys = _keys(rows, files["train"], options)
    keys, grouped = _grouped(rows, keys, files, options)
    further = columns.others(rows, keys)
    # Checked before anything is written.
    folder = str(files["train"].parent)
    source = _source(name, {"path": folder} | keys | {split: file.name for split, file in files.items()}, files)
    facts = inspect(name, source)
    if options.language:
        facts = replace(facts, language=options.language)
    free = [path.resolve() for path in options.unlabelled]
    texts = _texts_of(free, like=keys.get("text"), root=root)
    own_lines = _names([path for path in free if holds_lines(path)])
    measured = _measured(options, source, name)
    start = starts.choose(measured) if measured else None
    if start is None and facts.kind not in WITH_WORDS:
        raise ConfigError(
            f"a task of kind {facts.kind} has no model of words only; name an encoder with --start "
            "(`headstart starts` lists some)"
        )
    made = make_project(root)
    path, within = take_files(files, name=name, root=root)
    split = {split: within.get(split) for split in ("train", "dev", "test") if split in within or split != "dev"}
    task = {"path": path, "kind": facts.kind} | split | {key: value for key, value in keys.items() if key != "kind"}
    if facts.language != "en":
        task["language"] = facts.language
    if facts.empty:
        task["empty"] = "drop"
    proposal = Proposal(name, task, facts, start=start, minutes=options.minutes, others=further)
    written = {file: take_lines(file, name=stem, root=root) for file, stem in own_lines.items()}
    proposal.unlabelled = [
        _relative(written[path], root) if path in written else source.path if source.text == "text" else _given(source)
        for path, (source, _) in zip(free, texts, strict=True)
    ]
    if start is None and texts:
        proposal.speed = starts.own_speed()
        proposal.own_tokens = own_tokens(
            sum(count for _, count in texts), speed=proposal.speed, minutes=options.minutes
        )
    text = proposal.text()
    write_named(params, text, overwrite=options.overwrite)
    load_params(params)
    lines = [f"{options.labelled}: {line}" if not number else line for number, line in enumerate(facts.lines())]
    lines += [*_columns_in_words(keys, further), *grouped]
    lines += [
        f"{source.path}: {count:,} characters without labels"
        + (f"; one text a line, written to {_relative(written[path], root)}" if path in written else "")
        for path, (source, count) in zip(free, texts, strict=True)
    ]
    lines += [_in_words(one, chosen=one is start and len(measured) > 1) for one in measured]
    lines += [
        f"warning: {one.name} does not know {one.unknown:.0%} of the pieces of these texts, as of another language"
        for one in measured
        if one.unknown > UNKNOWN_SHARE
    ]
    lines += _reading_in_words(start.reading) if start is not None else []
    lines += [f"made {', '.join(made)}"] if made else []
    done = f"wrote {params.name} ({len(text.splitlines())} lines)"
    lines.append(f"{done}; the first run takes about {proposal.expected_minutes:.0f} minutes")
    return [*lines, f"{NEXT} headstart check, headstart fit; change what was guessed wrongly in params.yaml"]


def _keys(rows: Rows, file: Path, options: Options) -> dict[str, Any]:
    """Keys of the task, from the rows of train."""
    try:
        keys = columns.guess(rows, text=options.text, label=options.label, kind=options.kind)
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    table = rows.format in ("csv", "tsv", "jsonl", "json", "parquet")
    detected = {} if table and rows.format == _by_suffix(file) else {"format": rows.format}
    if rows.format == "label-first":
        keys = {"kind": keys["kind"]}
    return keys | detected | rows.keys


def _grouped(
    rows: Rows, keys: dict[str, Any], files: Mapping[str, Path], options: Options
) -> tuple[dict[str, Any], list[str]]:
    """The keys with the column of the group, and which it is and why, in words."""
    if options.group is not None:
        if options.group not in rows.columns:
            raise DataError(f"{files['train']}: no column {options.group!r}; the columns are {', '.join(rows.columns)}")
        return keys | {"group": options.group}, [f"column {options.group!r} is the group (--group)"]
    proposed = columns.group_column(rows, keys)
    if proposed is None or any(proposed[0] not in read_rows(file).columns for file in files.values()):
        return keys, []
    name, values, count = proposed
    return keys | {"group": name}, [
        f"column {name!r} is the group: {values:,} values, {count / values:.1f} rows each, which are not independent; "
        "the rows of a group stay in one split and one fold (--group names another column, group: null means none)"
    ]


def _by_suffix(file: Path) -> str | None:
    try:
        return TaskSource(path=".").format_of(file.name)
    except ValueError:
        return None


def _source(name: str, keys: dict[str, Any], files: Mapping[str, Path]) -> TaskSource:
    """The task as a run reads it, with rows without text dropped."""
    parents = {file.parent for file in files.values()}
    if len(parents) > 1:
        raise DataError(f"the splits are in different folders: {', '.join(map(str, parents))}; put them into one")
    given = {"dev": None, "test": None} | keys
    given |= (
        {} if given.get("format") in ("conll", "conllu", "squad") or given["kind"] == "questions" else {"empty": "drop"}
    )
    try:
        return TaskSource.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"data.tasks.{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def _columns_in_words(keys: Mapping[str, Any], others: Sequence[str]) -> list[str]:
    """Which columns are used, and which others could be the label."""
    used = [f"{keys[key]!r} is the {key}" for key in ("text", "first", "second", "label", "score") if key in keys]
    if not used:
        return []
    more = f"; other columns that may be labels: {', '.join(others)} (--label)" if others else ""
    return [f"column {', '.join(used)}{more}"]


def _measured(options: Options, source: TaskSource, name: str) -> list[starts.Measured]:
    if not options.starts:
        return []
    found = find_kind(source.kind).read(name, source)
    names = names_of(options.starts)
    return [starts.measure(start, found, kind=source.kind, name=names[start]) for start in options.starts]


def _in_words(one: starts.Measured, *, chosen: bool) -> str:
    speed = f"{one.texts_per_second:,.0f} texts and {one.tokens_per_second:,.0f} tokens a second on this machine"
    evidence = "" if one.logme != one.logme else f", LogME {one.logme:.3f}"
    return f"start {one.name}: {one.parameters / 1e6:.1f} M parameters, {speed}{evidence}{'; chosen' if chosen else ''}"


def _reading_in_words(found: Extent) -> list[str]:
    """How long texts are read, and how many are not read to their end."""
    lines = [] if found.chunk is None else [f"long texts are read in windows of {found.chunk} pieces"]
    if found.cut:
        lines.append(f"warning: {found.cut:.1%} of the texts have more than {found.max_length} pieces and are cut")
    return lines


def _texts_of(paths: Sequence[Path], *, like: str | None, root: Path) -> list[tuple[CorpusSource, int]]:
    """Text without labels, with its column, and the number of its characters."""
    found = []
    for path in paths:
        files = raw_files(path)[0]
        column = "text"
        if reader_for(files[0]) is not read_text:
            column = columns.text_column(read_rows(files[0]), like=like)
        source = CorpusSource(path=_relative(path, root), text=column)
        found.append((source, sum(len(text) for file in files for _, text, _ in read_texts(file, source, Reading()))))
    return found


def _names(files: Sequence[Path]) -> dict[Path, str]:
    """File -> its stem, different for different files."""
    found: dict[Path, str] = {}
    for file in files:
        name = file.stem
        while name in found.values():
            name += "-2"
        found[file] = name
    return found


def _given(source: CorpusSource) -> dict[str, str]:
    return {"path": source.path, "text": source.text}


def _relative(path: Path, root: Path) -> str:
    """A path below the project as relative to it; others stay absolute."""
    return path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else path.as_posix()
