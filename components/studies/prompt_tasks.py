"""Tasks that a language model answers by continuing a prompt (GPT-2: Radford et al. 2019; GPT-3: Brown et al. 2020).
The items are the same for every model.

    last-word      the last word of a held-out passage (LAMBADA: Paperno et al. 2016); a blank stands for it in prompts
                   with demonstrations (GPT-3, section 3.1.2)
    unscramble     a word from its letters, in five ways (GPT-3, section 3.9.2)
    sums           numbers of two and three digits, and two operations on three digits (GPT-3, section 3.9.1)
    new-word       a sentence with an invented word after its definition (GPT-3, section 3.9.5)
    translation    `source = target` (GPT-2, section 3.7)
    closed-book    questions without a context (GPT-3, section 3.2)
"""

from __future__ import annotations

import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Final

import numpy as np

from components.core.errors import ConfigError, DataError, nearest
from components.data.formats.corpus import read_documents
from components.data.formats.rows import open_rows
from components.data.formats.tables import as_text
from components.data.formats.words import words_of
from components.data.scoring import bleu
from components.data.scoring.base import Floats
from components.data.scoring.questions import answer_scores
from components.data.segmenters import SEGMENTERS, Segmentation
from components.data.tasks.data import Fields
from components.serving.generation import GAP
from components.studies.words import of_letters
from components.tokenization.tokenize import sentence_starts

#: Words of a passage: it ends with the sentence that reaches the second number, or with the document.
LEAST_WORDS, ENOUGH_WORDS = 10, 50
#: A word with the apostrophes in it.
_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)*")
#: Documents that are read.
DOCUMENTS: Final = 20_000
#: Scrambled words: the most frequent ones with 4 to 15 letters (GPT-3, section 3.9.2).
WORDS: Final = 10_000
#: Invented word, its definition, and a sentence with it.
NEW_WORDS: Final = (
    ("dremmit", 'A "dremmit" is a grey bird that lives on chimneys.', "Two dremmits built a nest above our kitchen."),
    ("lorp", 'To "lorp" means to run down a hill with open arms.', "In summer we lorp from the castle to the river."),
    ("kassel root", 'A "kassel root" is a sweet vegetable with a red skin.', "He baked a pie with one kassel root."),
    ("trundra", 'A "trundra" is a slow train for heavy goods.', "The trundra brings coal to the harbour."),
    ("ombeline", 'An "ombeline" is an instrument with nine strings.', "My sister plays the ombeline in a band."),
    ("whisp", 'To "whisp" something is to throw it very softly.', "Please whisp the eggs to me, one by one."),
    ("plimmet", 'A "plimmet" is a small boat for one person.', "She crossed the lake in her plimmet before breakfast."),
    ("troskel", 'A "troskel" is a warm drink made of milk and honey.', "After the walk we drank a hot troskel."),
    ("vandle", 'To "vandle" means to fold paper without looking at it.', "He can vandle a star in ten seconds."),
    ("oberack", 'An "oberack" is a tool that opens stone doors.', "The door stayed shut, as nobody had an oberack."),
    ("mirdle", 'A "mirdle" is a very light rain in the morning.', "A mirdle fell on the fields when we left."),
    ("sonnick", 'A "sonnick" is a bird that sings only at night.', "The sonnick in the oak kept us awake until three."),
)


@dataclass(frozen=True)
class Prompt:
    """A template: the texts before and after the answer; {text} and {second} are the parts of a row."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> Prompt:
        """Parse a text. The answer replaces its [MASK], or follows the text if there is none."""
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} {GAP}; write one or none")
        try:
            named = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
            template.format(text="", second="")
        except (LookupError, ValueError, TypeError, AttributeError):
            named = {""}
        if not named <= set(parts):
            allowed = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {allowed} may be in braces; write {{{{ for a brace")
        return cls(before.rstrip(" "), after[0] if after else "")

    def fill(self, parts: Fields) -> tuple[str, str]:
        """The texts before and after the answer for a row."""
        named = {"text": parts[0], "second": parts[1] if len(parts) > 1 else ""}
        return self.before.format(**named), self.after.format(**named)


@dataclass(frozen=True)
class Item:
    """The parts of a question, its correct answers, and the answer in a demonstration (by default the first correct
    one)."""

    question: tuple[str, ...]
    answers: tuple[str, ...]
    shown: str = ""


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()


Right = Callable[[str, Sequence[str]], bool]


@dataclass(frozen=True)
class PromptTask:
    """Items and the form of their prompts.

    Attributes:
        items: in random order, without a repeated question.
        cut: generated text -> answer.
        right: whether an answer is correct, given the correct ones; None: BLEU.
        closed: whether the answers of other items are possible answers, so that a model can choose among them.
        intro: the text before all demonstrations.
        alone: the form of a prompt without demonstrations; None: `form`.
    """

    name: str
    items: Sequence[Item]
    form: Prompt
    cut: Callable[[str], str] = first_line
    right: Right | None = None
    closed: bool = True
    intro: str = ""
    alone: Prompt | None = None

    def prompt(self, question: Fields, demonstrations: Sequence[Item]) -> tuple[str, str]:
        """The texts before and after the answer to a question."""
        form = self.form if demonstrations or self.alone is None else self.alone
        filled = [(form.fill(item.question), item.shown or item.answers[0]) for item in demonstrations]
        lines = [f"{before} {answer}{after}\n" for (before, after), answer in filled]
        before, after = form.fill(question)
        return "".join([self.intro, *lines, before]), after

    @property
    def score(self) -> Callable[[Floats], Floats]:
        """(..., K) sums -> (...) score."""
        return bleu.bleu if self.right is None else lambda sums: sums[..., 0] / sums[..., 1]


@dataclass(frozen=True)
class Source:
    """What the items are made of: the corpus of the run (read if a task needs it), a file of pairs, and the number of
    items."""

    corpus: Callable[[], Path]
    pairs: Path | None
    count: int


def first_word(text: str) -> str:
    """The first word of a text; empty if there is none."""
    word = _WORD.search(text)
    return word.group() if word else ""


def first_number(text: str) -> str:
    """The integer at the beginning of a text, without spaces and thousands separators; empty if there is none."""
    number = re.match(r"\s*-?\s?\d[\d,]*", text)
    return re.sub(r"[\s,]", "", number.group()) if number else ""


def first_sentence(text: str) -> str:
    """The text up to the first line break or, without one, the first sentence."""
    text = text.strip()
    line = first_line(text)
    return line if line != text else text[: [*sentence_starts(text), len(text)][1]].strip()


def is_equal(answer: str, correct: Sequence[str]) -> bool:
    """Whether the answer is one of the correct ones, apart from case."""
    return answer.casefold() in {each.casefold() for each in correct}


def is_exact_match(answer: str, correct: Sequence[str]) -> bool:
    """Exact match after SQuAD's normalisation (`components.data.scoring.questions`)."""
    return answer_scores(answer, correct)[1] == 1


def contains(answer: str, correct: Sequence[str]) -> bool:
    return any(each.casefold() in answer.casefold() for each in correct)


def last_word(source: Source, rng: np.random.Generator) -> list[PromptTask]:
    """Beginnings of held-out documents that end with a sentence, without their last word."""
    corpus = source.corpus()
    passages = map(_passage, islice(read_documents(corpus, "heldout"), DOCUMENTS))
    items = list({item.question: item for item in passages if item is not None}.values())
    if not items:
        raise DataError(f"{corpus}: no held-out document has {LEAST_WORDS} words and ends with a word")
    drawn = [items[index] for index in rng.permutation(len(items))[: source.count]]
    return [
        PromptTask("last-word", drawn, Prompt("{text} ____. ->", ""), first_word, is_equal, alone=Prompt("{text}", ""))
    ]


def _passage(text: str) -> Item | None:
    thai = Segmentation().choose(text) is SEGMENTERS["thai"]
    ends = [*sentence_starts(text, thai=thai), len(text)][1:]
    spans = words_of(text, marks="none")
    enough = spans[min(ENOUGH_WORDS, len(spans)) - 1][1] if spans else 0
    end = next(end for end in ends if end >= enough)
    spans = [span for span in spans if span[1] <= end]
    if len(spans) < LEAST_WORDS or not of_letters(word := text[slice(*spans[-1])]):
        return None
    # One line, because a line break ends a demonstration.
    return Item((" ".join(text[: spans[-1][0]].split()),), (word,))


def unscramble(source: Source, rng: np.random.Generator) -> list[PromptTask]:
    words = frequent_words(read_documents(source.corpus()))
    intro = "Please unscramble the letters into a word, and write that word:\n"
    tasks = []
    for name, scramble in SCRAMBLES.items():
        items = list(islice(_scrambled(words, scramble, rng), source.count))
        tasks.append(
            PromptTask(f"unscramble: {name}", items, Prompt("{text} =", ""), first_word, is_equal, intro=intro)
        )
    return tasks


def frequent_words(documents: Iterable[str]) -> list[str]:
    """The most frequent words of documents, in lower case, by descending frequency."""
    segmentation, counts = Segmentation(), Counter[str]()
    for text in islice(documents, DOCUMENTS):
        counts.update(word.strip(string.punctuation) for word in segmentation.spaced(text).lower().split())
    return [word for word, _ in counts.most_common() if 4 <= len(word) <= 15 and word.isalpha()][:WORDS]


def _scrambled(
    words: Sequence[str], scramble: Callable[[str, np.random.Generator], str], rng: np.random.Generator
) -> Iterator[Item]:
    for index in rng.permutation(len(words)):
        word = words[index]
        # A draw may leave a word as it is, always if all its letters are equal or too few are moved.
        drawn = next((text for text in (scramble(word, rng) for _ in range(10)) if text != word), None)
        if drawn is not None:
            yield Item((drawn,), (word,))


def _cycled(word: str, rng: np.random.Generator) -> str:
    first = int(rng.integers(1, len(word)))
    return word[first:] + word[:first]


def _shuffled(word: str, rng: np.random.Generator, *, kept: int) -> str:
    inner = word[kept:-kept]
    return word[:kept] + "".join(inner[index] for index in rng.permutation(len(inner))) + word[-kept:]


def _inserted(word: str, rng: np.random.Generator) -> str:
    marks = rng.choice(list(f" {string.punctuation}"), len(word) - 1)
    return "".join(letter + mark for letter, mark in zip(word, [*marks, ""], strict=True))


SCRAMBLES: Final[Mapping[str, Callable[[str, np.random.Generator], str]]] = {
    "cycled letters": _cycled,
    "anagram but 1 + 1 letters": lambda word, rng: _shuffled(word, rng, kept=1),
    "anagram but 2 + 2 letters": lambda word, rng: _shuffled(word, rng, kept=2),
    "random insertion": _inserted,
    "reversed": lambda word, _: word[::-1],
}


def sums(source: Source, rng: np.random.Generator) -> list[PromptTask]:
    """Additions and subtractions of numbers that are uniform in [0, 100) and [0, 1000), and operations on three
    uniform digits."""
    tasks = []
    for name, draw in SUMS.items():
        items: dict[str, Item] = {}
        while len(items) < source.count:
            question, value = draw(rng)
            items[question] = Item((question,), (str(value),))
        form = Prompt("Q: What is {text}?\nA:", "")
        tasks.append(PromptTask(f"sums: {name}", list(items.values()), form, first_number, is_equal))
    return tasks


def _sum(limit: int, sign: int) -> Callable[[np.random.Generator], tuple[str, int]]:
    def draw(rng: np.random.Generator) -> tuple[str, int]:
        left, right = rng.integers(0, limit, 2).tolist()
        return f"{left} {'plus' if sign > 0 else 'minus'} {right}", left + sign * right

    return draw


_OPERATIONS: Final = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _composite(rng: np.random.Generator) -> tuple[str, int]:
    a, b, c = rng.integers(0, 10, 3).tolist()
    outer, inner = rng.choice(list(_OPERATIONS), 2).tolist()
    return f"{a}{outer}({b}{inner}{c})", _OPERATIONS[outer](a, _OPERATIONS[inner](b, c))


SUMS: Final[Mapping[str, Callable[[np.random.Generator], tuple[str, int]]]] = {
    "2 digits, plus": _sum(100, 1),
    "2 digits, minus": _sum(100, -1),
    "3 digits, plus": _sum(1000, 1),
    "3 digits, minus": _sum(1000, -1),
    "1 digit, composite": _composite,
}


def new_word(source: Source, rng: np.random.Generator) -> list[PromptTask]:
    """Sentences with invented words; an answer is correct if the word occurs in it, the rest is for the reader."""
    items = [
        Item((f"{definition} An example of a sentence that uses the word {word} is:",), (word,), usage)
        for word, definition, usage in NEW_WORDS
    ]
    drawn = [items[index] for index in rng.permutation(len(items))]
    return [PromptTask("new-word", drawn, Prompt("{text}\n", ""), first_sentence, contains, closed=False)]


def translation(source: Source, rng: np.random.Generator) -> list[PromptTask]:
    """Pairs of a file."""
    bleu.metric()  # a missing package is found before anything is measured
    items = _pairs(source, ("source", "target"), rng)
    return [PromptTask("translation", items, Prompt("{text} =", ""), first_sentence, None, closed=False)]


def closed_book(source: Source, rng: np.random.Generator) -> list[PromptTask]:
    items = _pairs(source, ("question", "answer"), rng)
    return [PromptTask("closed-book", items, Prompt("Q: {text}\nA:", ""), first_line, is_exact_match)]


def _pairs(source: Source, columns: tuple[str, str], rng: np.random.Generator) -> list[Item]:
    """Rows of the file in random order; rows of one question are one item with several answers."""
    left, right = columns
    path = source.pairs
    if path is None:
        raise ConfigError(f"--pairs: missing; name a file with the columns {left} and {right}, such as jsonl or tsv")
    answers: dict[str, list[str]] = {}
    for where, row in open_rows(path).rows:
        if lacking := [name for name in columns if name not in row]:
            raise DataError(f"{where}: no column {lacking[0]!r}{nearest(lacking[0], row)}")
        question, answer = (" ".join((as_text(row[name], where) or "").split()) for name in columns)
        if not question or not answer:
            raise DataError(f"{where}: {left if not question else right} is empty; remove the row")
        answers.setdefault(question, []).append(answer)
    items = [Item((question,), tuple(dict.fromkeys(of))) for question, of in answers.items()]
    return [items[index] for index in rng.permutation(len(items))[: source.count]]


#: Name -> (source, generator of random numbers) -> tasks.
TASKS: Final[Mapping[str, Callable[[Source, np.random.Generator], list[PromptTask]]]] = {
    "last-word": last_word,
    "unscramble": unscramble,
    "sums": sums,
    "new-word": new_word,
    "translation": translation,
    "closed-book": closed_book,
}
#: Tasks that need a file, and its first column.
FROM_FILE: Final[Mapping[str, str]] = {"translation": "source", "closed-book": "question"}
