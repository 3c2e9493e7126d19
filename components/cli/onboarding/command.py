"""`headstart init`: inspect labelled data, write params.yaml."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import ValidationError

from components.cli.common import NEXT, InitOptions
from components.cli.onboarding.project import holds_lines, take_files, take_lines
from components.cli.onboarding.repository import PARAMS, commit_project, make_project
from components.cli.onboarding.splits import split_files
from components.core import threads
from components.core.errors import ConfigError, DataError
from components.core.outputs import check_output, write_named
from components.core.processors import cores
from components.data.facts import Facts
from components.data.formats.lines import Reading
from components.data.formats.tables import Layout
from components.data.ingestion.readers import TEXT, form_for, raw_files, read_texts
from components.data.sampling import Rows, read_rows
from components.data.tasks.data import Examples
from components.data.tasks.kinds import find_kind
from components.data.tasks.reading.labels import are_words, text_of
from components.data.tasks.reading.records import class_name, is_blank, merged_spellings
from components.data.understanding import Understanding, text_columns, understand
from components.learners.task_models.extent import Extent, reading_of
from components.learners.words import UNSPACED
from components.pipeline.dvc_yaml import refuse_other_pipeline, write_dvc_yaml
from components.settings.contrastive import ROWS, ContrastiveSettings, steps_of
from components.settings.data import CorpusSource
from components.settings.formats import by_name, is_table
from components.settings.loading import load_params
from components.settings.minutes import FIRST_MINUTES
from components.settings.recipes import CHARACTERS, LEAST_WORDS, PASSES
from components.settings.tasks import KINDS, OF_ONE_TEXT, TaskSource, has

if TYPE_CHECKING:
    from components.cli.onboarding.starts import Measured


#: Labels that are listed in a comment.
_LABELS: Final = 6
#: Column of the comments.
_COLUMN: Final = 58
#: Characters per piece at least. In languages without spaces, pieces of a vocabulary of another language are single
#: characters.
_CHARACTERS, _CHARACTERS_UNSPACED = 3.5, 1.2
#: Special pieces of a text or a pair of texts.
_SPECIAL: Final = 4
#: Minutes of the stages of a run without training: reading, evaluation, report, registration.
_FIXED: Final = 1.5


@dataclass
class Proposal:
    """The proposed settings.

    Attributes:
        own_tokens: budget of an own language model; 0: none.
        speed: tokens per second of its training.
        unlabelled: text without labels: paths, or paths with columns.
        minutes: limit of the ways to learn of an encoder.
        others: other columns that may be labels.
    """

    name: str
    task: dict[str, Any]
    facts: Facts
    start: Measured | None = None
    own_tokens: int = 0
    speed: float = 0.0
    unlabelled: list[str | dict[str, str]] = field(default_factory=list)
    minutes: float = FIRST_MINUTES
    others: list[str] = field(default_factory=list)

    def learn(self, characters: int) -> None:
        """Propose a language model of a text of so many characters."""
        from components.cli.onboarding.starts import own_speed

        threads.use(cores())
        self.speed = own_speed()
        self.own_tokens = own_tokens(characters, speed=self.speed, minutes=self.minutes)

    @property
    def reading(self) -> Extent:
        """What is read of a text."""
        if self.start is not None:
            return self.start.reading
        # There is no tokenizer yet.
        per_piece = _CHARACTERS_UNSPACED if self.facts.language in UNSPACED else _CHARACTERS
        pieces = int(self.facts.long / per_piece) + _SPECIAL
        return reading_of(np.array([pieces]), single=self.facts.kind in OF_ONE_TEXT)

    @property
    def folds(self) -> int:
        """Folds of the cross-validation: fewer where each costs a training."""
        return 5 if self.start is None and not self.own_tokens else 3

    @property
    def expected_minutes(self) -> float:
        """Expected minutes of the first run."""
        train, test = self.facts.rows["train"], self.facts.rows["test"]
        minutes = _FIXED + 0.2 + train * (self.folds + 1) / 60_000
        if self.start is not None:
            minutes += (train + test) / self.start.texts_per_second / 60 + self._learning
        elif self.own_tokens:
            minutes += self.own_tokens / self.speed / 60 + 2.0
        return minutes

    @property
    def _learning(self) -> float:
        """Minutes of contrastive training of some passes, in every fold and at the end."""
        assert self.start is not None
        train = min(self.facts.rows["train"], 2_000)
        steps = steps_of(ContrastiveSettings().epochs, epoch=train / ROWS)
        cost = 3 * ROWS * steps * (self.folds + 1) / self.start.texts_per_second / 60
        return 0.0 if self.start.large else min(cost, self.minutes)

    def text(self) -> str:
        """The content of params.yaml; comments begin in one column."""
        head = f"# {self.name}: {self.facts.kind}, language {self.facts.language}, written by headstart init.\n"
        lines = [head + "# Every other key has a default: headstart check --settings", *self._data(), self._models()]
        parts = (line.partition("\t") for line in "\n".join(lines).split("\n"))
        return "".join((f"{key.ljust(_COLUMN)} # {why}" if why else key) + "\n" for key, _, why in parts)

    def _data(self) -> Iterator[str]:
        """Lines of the section `data`; comments follow tabs, which no value has."""
        facts = self.facts
        comments = {
            "path": "folder of the files",
            "kind": "others: docs/tasks.md",
            "train": f"{facts.rows['train']:,} rows are learned",
            "test": f"{facts.rows['test']:,} rows are only scored",
            "dev": "not used for choices: selection: budget",
            "text": "column of the text",
            "label": "column of the label" + (f"; or {', '.join(self.others[:4])}" if self.others else ""),
            "group": "the rows of a group are in one split and one fold; null: rows are independent",
            "language": "selects baselines",
        }
        if held_out := facts.counts["test_rows_held_out"]:
            of = "group" if "group" in self.task else "text"
            comments["test"] = f"{held_out:,} rows of train are held out, by a hash of the {of}"
        yield f"data:\n  tasks:\n    {_flow(self.name)}:"
        for key, value in self.task.items():
            yield f"      {key}: {_flow(value)}\t{comments.get(key, '')}"
        if self.start is not None and facts.kind in OF_ONE_TEXT and not are_words(map(text_of, facts.classes)):
            names = [json.dumps(name, ensure_ascii=False) for name in sorted(facts.classes)[:_LABELS]]
            texts = ", ".join(f"{name}: ..." for name in names)
            yield f"      # label_texts: {{{texts}}}\tmeaning of each label in a few words, for the encoder"
        yield f"      folds: {self.folds}\tof the cross-validation within the labels, by which systems are chosen"
        if self.start is not None or self.own_tokens:
            yield "      seeds: [0]\tmore seeds measure the noise of training: [0, 1, 2]"
        if self.unlabelled:
            yield f"  unlabelled: {_flow(self.unlabelled)}\ttext without labels, beside the texts of train"

    def _models(self) -> str:
        """The sections `pretrain` and `finetune`."""
        start, reading = self.start, self.reading
        windows = f"    chunk: {reading.chunk}\tlong texts are read in windows of so many pieces\n"
        windows = "" if reading.chunk is None else windows
        if start is not None:
            ways, reason = "", "limit of all ways to learn that are tried"
            if start.large:
                ways, reason = ", ways: [features]", "only heads on frozen features: its embeddings are large"
            return f"""\
pretrain:
  {start.name}:\t{start.parameters / 1e6:.0f} M parameters, {start.texts_per_second:,.0f} texts/s here
    source: {_flow(str(start.folder))}
    digest: {start.digest}
finetune:
  {start.name}:\tthe recipe for imported encoders; `headstart check --settings` shows all keys
    max_length: {reading.max_length}\tpieces of a text; {reading.cut:.1%} are longer
{windows}    auto: {{minutes: {self.minutes:g}{ways}}}\t{reason}"""
        if self.own_tokens:
            return f"""\
pretrain:
  ulmfit:\ta language model of the text, about {self.speed:,.0f} tokens/s here
    model: {{embedding: 320, hidden: 640, layers: 2, static: 320}}
    training: {{tokens: {self.own_tokens}, vectors: true}}
finetune:
  ulmfit:
    max_length: {reading.max_length}\tpieces of a text, estimated from characters
{windows}"""
        return "pretrain: {}\twords models only; with an encoder: headstart init FILE --start FOLDER --overwrite"


def _flow(value: Any) -> str:
    """A value in YAML's flow style; JSON is a subset of it."""
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value) is not None
    if plain and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n"):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def own_tokens(characters: int, *, speed: float, minutes: float) -> int:
    """Budget of an own language model: `PASSES` over the text, at most `minutes`; 0 if the text is too short.

    Args:
        speed: tokens per second.
    """
    words = characters / CHARACTERS
    if words < LEAST_WORDS:
        return 0
    tokens = min(PASSES * 1.4 * words, 60 * minutes * speed)
    return max(100_000, int(tokens // 100_000) * 100_000)


def block_name(text: str) -> str:
    """A name for a block, from the name of a file or folder."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "task"


def names_of(starts: Sequence[str]) -> Mapping[str, str]:
    """Start -> name of its block; different for different starts."""
    names: dict[str, str] = {}
    for start in starts:
        name = block_name(Path(start.partition("@")[0]).name)
        while name in names.values():
            name += "-2"
        names[start] = name
    return names


def init(options: InitOptions, *, root: Path) -> list[str]:
    """Write params.yaml below `root`, and what a project needs; returns what was found and written, in words.

    Raises:
        ArtifactError: params.yaml, or a copy of data, exists and may not be replaced
            (`components.core.outputs.check_output`).
        ConfigError: a start does not exist, or the folder has another pipeline.
        DataError: the labelled files are invalid, or nothing looks like a text or a label.
    """
    from components.interchange.starts.registry import advice

    check_output(root / PARAMS, overwrite=options.overwrite)
    refuse_other_pipeline(root)
    files = split_files(options.labelled)
    named = options.labelled if options.labelled.is_dir() else files["train"]
    name = block_name(options.name or named.name.partition(".")[0])
    samples = {split: read_rows(file, Layout(**options.reading)) for split, file in files.items()}
    meant = _understood(rows := samples["train"], files["train"], options)
    keys = _keys(meant.keys, rows, files["train"], options)
    without = _without_labels(samples, keys)
    left_out = [f"warning: {files[split].name} {why}" for split, why in without.items()]
    files = {split: file for split, file in files.items() if split not in without}
    keys, grouped = _with_group(keys, meant, [samples[split] for split in files], options)
    # Checked before anything is written.
    source = _source(name, keys, files)
    examples = _read(name, source)
    facts = Facts(source.kind, examples)
    facts.language = options.language or facts.language
    texts = [_text(path.resolve(), like=keys.get("text"), root=root) for path in options.unlabelled]
    measured = _measured(options, source, examples)
    start = _best(measured)
    # params.yaml is written by then.
    again = "this command again with --overwrite --start {}"
    said = _starts_in_words(measured, start) if measured or texts else [advice(facts.language, use=again)]
    made = make_project(root)
    path, within = take_files(files, name=name, root=root)
    task = {"path": path} | _block(keys, facts, within)
    proposal = Proposal(name, task, facts, start=start, minutes=options.minutes, others=meant.others)
    proposal.unlabelled, of_texts = _take(texts, root=root)
    if start is None and texts:
        proposal.learn(sum(count for _, _, count in texts))
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
        *of_texts,
        *said,
        *([f"copied to {path}"] if not named.resolve().is_relative_to((root / path).resolve()) else []),
        *([f"made {', '.join(made)}"] if made else []),
        f"wrote {PARAMS} ({len(content.splitlines())} lines); the first run takes about "
        f"{proposal.expected_minutes:.0f} minutes",
        f"{NEXT} headstart check, headstart fit; change what was guessed wrongly in params.yaml",
    ]


def _understood(rows: Rows, file: Path, options: InitOptions) -> Understanding:
    try:
        text = options.text.split(",") if options.text else ()
        return understand(rows, text=text, label=options.label or None, kind=options.kind or None)
    except DataError as error:
        raise _for_user(error, where=file) from error


def _keys(keys: dict[str, Any], rows: Rows, file: Path, options: InitOptions) -> dict[str, Any]:
    """Keys of the task, with those of the options."""
    if options.group and options.group not in rows.columns:
        raise DataError(f"{file}: no column {options.group!r}; the columns are {', '.join(rows.columns)}")
    keys = keys | ({"label_separator": options.label_separator} if options.label_separator else {})
    keys |= {"scheme": options.scheme} if options.scheme else {}
    if rows.format == "label-first":
        keys = {"kind": keys["kind"]}
    # A JSON document of questions is SQuAD, unless its format is named.
    by_suffix = by_name(file.name.partition("#")[0]) if not has(keys["kind"], "context") else ""
    keys |= {} if is_table(rows.format) and rows.format == by_suffix else {"format": rows.format}
    return keys | options.reading


def _without_labels(samples: Mapping[str, Rows], keys: Mapping[str, Any]) -> dict[str, str]:
    """Split -> why it has no labels, of dev and test."""
    label = keys.get("label", keys.get("score"))
    if label is None or has(keys["kind"], "labels"):
        return {}
    given = {
        split: {class_name(value) for value in rows.columns.get(label, ()) if not is_blank(value)}
        for split, rows in samples.items()
    }
    same = merged_spellings(set().union(*given.values()))
    given = {split: {same.get(name, name) for name in names} for split, names in given.items()}
    reasons = {}
    for split, names in given.items():
        if label not in samples[split].columns:
            reasons[split] = f"has no column {label!r} (columns: {', '.join(samples[split].columns)})"
        elif not names:
            reasons[split] = f"has no label in column {label!r}"
        elif has(keys["kind"], "label") and not given["train"] & names:
            reasons[split] = f"has no label of train in column {label!r} ({min(names)!r})"
    left_out = "it is left out, its rows can be predicted (headstart predict)"
    return {split: f"{why}; {left_out}" for split, why in reasons.items() if split != "train"}


def _with_group(
    keys: dict[str, Any], meant: Understanding, samples: Sequence[Rows], options: InitOptions
) -> tuple[dict[str, Any], list[str]]:
    """Add what is done with rows without a label, and the group; with the column of the group and why, in words."""
    lacks = "no_label" in KINDS[meant.kind] and any(None in meant.targets(rows) for rows in samples)
    keys = keys | ({"no_label": options.no_label or "drop"} if options.no_label or lacks else {})
    if options.group:
        return keys | {"group": options.group}, [f"column {options.group!r} is the group (--group)"]
    if meant.group is None or any(meant.group[0] not in rows.columns for rows in samples):
        return keys, []
    name, why = meant.group
    return keys | {"group": name}, [f"{why} (--group names another column, group: null means none)"]


def _block(keys: Mapping[str, Any], facts: Facts, files: Mapping[str, str]) -> dict[str, Any]:
    """Keys of `data.tasks.<name>` below its path, in the order in which they are written."""
    split = {split: files.get(split) for split in ("train", "dev", "test") if split in files or split != "dev"}
    block = {"kind": facts.kind} | split | {key: value for key, value in keys.items() if key != "kind"}
    block |= {"language": facts.language} if facts.language != "en" else {}
    return block | ({"empty": "drop"} if facts.of_any("empty") else {})


def _read(name: str, source: TaskSource) -> Examples:
    try:
        return find_kind(source.kind, key=f"data.tasks.{name}.kind").read(name, source)
    except DataError as error:
        raise _for_user(error) from error


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
    if given.get("format") not in ("conll", "conllu", "squad") and not has(keys["kind"], "context"):
        given["empty"] = "drop"
    try:
        return TaskSource.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"data.tasks.{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def _best(measured: Sequence[Measured]) -> Measured | None:
    return max(measured, key=lambda start: -math.inf if math.isnan(start.logme) else start.logme, default=None)


def _measured(options: InitOptions, source: TaskSource, examples: Examples) -> list[Measured]:
    if not options.start:
        return []
    from components.cli.onboarding.starts import measure

    threads.use(cores())
    blocks = names_of(options.start)
    alone = len(options.start) == 1
    return [measure(start, examples, source=source, name=blocks[start], alone=alone) for start in options.start]


#: Text without labels: path, source, and number of its characters.
_Text = tuple[Path, CorpusSource, int]


def _text(path: Path, *, like: str | None, root: Path) -> _Text:
    """Read text without labels, and guess its column."""
    files = raw_files(path)[0]
    column = "text"
    if form_for(files[0]) != TEXT:
        column = text_columns(read_rows(files[0]), like=[like] if like else ())[0]
    source = CorpusSource(path=_relative(path, root), text=column)
    return path, source, sum(len(text) for file in files for _, text, _ in read_texts(file, source, Reading()))


def _take(texts: Sequence[_Text], *, root: Path) -> tuple[list[str | dict[str, str]], list[str]]:
    """The entries of `data.unlabelled`, and what they are, in words. A list of texts is written as rows, each under
    another name."""
    entries: list[str | dict[str, str]] = []
    said, taken = [], set[str]()
    for path, source, characters in texts:
        entry: str | dict[str, str] = source.path
        written = ""
        if holds_lines(path):
            name = path.stem
            while name in taken:
                name += "-2"
            taken.add(name)
            entry = _relative(take_lines(path, name=name, root=root), root)
            written = f"; one text a line, written to {entry}"
        elif source.text != "text":
            entry = {"path": source.path, "text": source.text}
        entries.append(entry)
        said.append(f"{source.path}: {characters:,} characters without labels{written}")
    return entries, said


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


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else path.as_posix()
