"""What a causal language model writes after prompts, and its scores against references."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from components.inference.generation import Sampling, generate
from components.models.encoder import Encoder
from components.scoring.intervals import interval
from components.scoring.questions import answer_scores
from components.studies.prompts import fitting
from components.training.rng import counter_seed

_END: Final = re.compile(r"\n|\bQ ?:")
_NUMBER: Final = re.compile(r"\s*(-?\s*\d[\d\s,]*)")


@dataclass(frozen=True)
class Item:
    """A prompt and what is right after it.

    Attributes:
        group: rows of a group have a score of their own.
        prompt: without demonstrations.
        references: right answers.
        shown: demonstrations.
    """

    group: str
    prompt: str
    references: tuple[str, ...]
    shown: tuple[str, ...] = ()


def write(encoder: Encoder, items: Sequence[Item], *, length: int, seed: int) -> tuple[list[str], float]:
    """What a causal model writes after each prompt, and the mean number of demonstrations that fit into its positions.
    Of a longer prompt the beginning is cut off."""
    model, tokenizer = encoder.model, encoder.tokenizer
    around = model.special_tokens([-1])
    lead = around[: around.index(-1)]
    if model.max_tokens is not None:
        # Half of the positions at most, so that a short model reads some of the prompt.
        length = min(length, max(1, (model.max_tokens - len(lead)) // 2))
    shown, prompts = [item.shown for item in items], [item.prompt for item in items]
    texts, fit = fitting(encoder, shown, prompts, reserved=[length] * len(items))
    written = []
    for row, pieces in enumerate(tokenizer.encode_batch(texts)):
        room = len(pieces) if model.max_tokens is None else model.max_tokens - length - len(lead)
        prompt = [*lead, *pieces[max(0, len(pieces) - room) :].tolist()]
        sampling, of_row = Sampling(temperature=0), counter_seed(seed, "written", row)
        text = tokenizer.decode(generate(model, prompt, length=length, sampling=sampling, seed=of_row))
        written.append(_END.split(text.strip())[0].strip())
    return written, fit


def of_number(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Exact match of the number at the beginning of an answer, spaces and commas aside."""
    match = _NUMBER.match(answer)
    digits = re.sub(r"[\s,]", "", match[1]) if match else ""
    return {"exact_match": float(any(digits and int(digits) == int(reference) for reference in references))}


def of_question(answer: str, references: Sequence[str]) -> dict[str, float]:
    """F1 and exact match by SQuAD's rules, the best over the references."""
    f1, exact, *_ = answer_scores(answer, references)
    return {"f1": f1, "exact_match": exact}


def scored(
    items: Sequence[Item],
    written: Sequence[str],
    score: Callable[[str, Sequence[str]], dict[str, float]],
    *,
    confidence: float,
) -> dict[str, dict[str, dict[str, float]]]:
    """Group -> metric -> mean with its interval over the rows."""
    groups: dict[str, list[dict[str, float]]] = {}
    for item, answer in zip(items, written, strict=True):
        groups.setdefault(item.group, []).append(score(answer, item.references))
    means: dict[str, dict[str, dict[str, float]]] = {}
    for group, rows in groups.items():
        for name in rows[0]:
            values = np.asarray([row[name] for row in rows])
            without = (values.sum() - values) / max(len(values) - 1, 1)
            sizes = np.ones(len(values))
            around = interval(values.mean(keepdims=True), without[None], sizes, confidence=confidence)
            means.setdefault(group, {})[name] = around.within(0.0, 1.0).as_dict()
    return means
