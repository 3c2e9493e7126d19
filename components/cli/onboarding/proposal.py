"""A commented params.yaml for labelled data, and what it is expected to cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from components.cli.onboarding.inspection import Facts
from components.data.tasks.reading.labels import are_words, text_of
from components.learners.task_models.extent import Extent, reading_of
from components.learners.words import UNSPACED
from components.settings.completion import CHARACTERS, LEAST_WORDS, PASSES
from components.settings.contrastive import ROWS, ContrastiveSettings, steps_of
from components.settings.minutes import FIRST_MINUTES
from components.settings.tasks import OF_ONE_TEXT

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
        """The content of params.yaml."""
        head = [
            f"# {self.name}: {self.facts.kind}, language {self.facts.language}, written by headstart init.",
            "# Every other key has a default: headstart check --settings",
        ]
        rows = [*self._data(), *self._models()]
        return "\n".join([*head, *(f"{key.ljust(_COLUMN)} # {why}" if why else key for key, why in rows)]) + "\n"

    def _data(self) -> Iterator[tuple[str, str]]:
        """Lines of the section `data` with their comments."""
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
        if facts.held_out:
            of = "group" if "group" in self.task else "text"
            comments["test"] = f"{facts.held_out:,} rows of train are held out, by a hash of the {of}"
        yield from (("data:", ""), ("  tasks:", ""), (f"    {self.name}:", ""))
        for key, value in self.task.items():
            yield f"      {key}: {_flow(value)}", comments.get(key, "")
        if self.start is not None and facts.kind in OF_ONE_TEXT and not are_words(map(text_of, facts.classes)):
            names = [json.dumps(name, ensure_ascii=False) for name in sorted(facts.classes)[:_LABELS]]
            texts = ", ".join(f"{name}: ..." for name in names)
            yield f"      # label_texts: {{{texts}}}", "meaning of each label in a few words, for the encoder"
        yield f"      folds: {self.folds}", "of the cross-validation within the labels, by which systems are chosen"
        if self.start is not None or self.own_tokens:
            yield "      seeds: [0]", "more seeds measure the noise of training: [0, 1, 2]"
        if self.unlabelled:
            yield f"  unlabelled: {_flow(self.unlabelled)}", "text without labels, beside the texts of train"

    def _models(self) -> Iterator[tuple[str, str]]:
        """Lines of the sections `pretrain` and `finetune` with their comments."""
        start, reading = self.start, self.reading
        windows = [(f"    chunk: {reading.chunk}", "long texts are read in windows of so many pieces")]
        windows = [] if reading.chunk is None else windows
        if start is not None:
            ways, reason = "", "limit of all ways to learn that are tried"
            if start.large:
                ways, reason = ", ways: [features]", "only heads on frozen features: its embeddings are large"
            speed = f"{start.parameters / 1e6:.0f} M parameters, {start.texts_per_second:,.0f} texts/s here"
            yield from (
                ("pretrain:", ""),
                (f"  {start.name}:", speed),
                (f"    source: {_flow(str(start.folder))}", ""),
                (f"    digest: {start.digest}", ""),
                ("finetune:", ""),
                (f"  {start.name}:", "the recipe for imported encoders; `headstart check --settings` shows all keys"),
                (f"    max_length: {reading.max_length}", f"pieces of a text; {reading.cut:.1%} are longer"),
                *windows,
                (f"    auto: {{minutes: {self.minutes:g}{ways}}}", reason),
            )
        elif self.own_tokens:
            yield from (
                ("pretrain:", ""),
                ("  ulmfit:", f"a language model of the text, about {self.speed:,.0f} tokens/s here"),
                ("    model: {embedding: 320, hidden: 640, layers: 2, static: 320}", ""),
                (f"    training: {{tokens: {self.own_tokens}, vectors: true}}", ""),
                ("finetune:", ""),
                ("  ulmfit:", ""),
                (f"    max_length: {reading.max_length}", "pieces of a text, estimated from characters"),
                *windows,
            )
        else:
            yield "pretrain: {}", "words models only; with an encoder: headstart init FILE --start FOLDER --overwrite"


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
