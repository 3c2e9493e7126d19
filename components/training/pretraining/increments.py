"""Whether adaptation continues from the last adapted model, and on which text.

An increment learns the new shards of the domain corpus, with replay of earlier ones and a re-warmed learning rate
(Ibrahim et al. 2024, Simple and Scalable Strategies to Continually Pre-train Large Language Models). A rebuild starts
from the pretrained model and learns the whole corpus."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from components.core.artifacts import Manifest
from components.models import family as family_named
from components.settings.section import Section
from components.settings.training import IncrementSettings
from components.tokenization.store import Selection, TokenStore
from components.training.rng import counter_rng

#: Sampler -> why a family with this sampler cannot learn new text alone.
WHOLE_TEXT = {
    "cooccurrences": "its co-occurrence counts are those of the whole text",
    "translation": "its vocabulary is learned again with every change of the pairs",
}
#: What a model depends on besides its text -> why it is rebuilt if that has changed.
CHANGES = {
    "family": "another family",
    "settings": "settings changed",
    "seed": "settings changed",
    "code": "code or libraries changed",
    "pretrained": "another pretrained model",
    "vocabulary": "another vocabulary",
}
#: An increment that raises the loss on held-out text (nats) by more than this is replaced by a rebuild.
WORSE = 0.02


class IncrementText(Section):
    """The text of an increment: new shards, and `replay` tokens of a sample of documents of the `learned` shards."""

    learned: tuple[str, ...]
    replay: int

    def select(self, store: TokenStore, *, seed: int) -> Selection:
        """The documents of the increment, in corpus order; `seed` determines the sample."""
        learned = set(self.learned)
        new = [np.arange(rows.start, rows.stop) for name, rows in store.shards.items() if name not in learned]
        old = np.concatenate(
            [np.empty(0, np.int64), *(np.asarray(store.shards[name], np.int64) for name in sorted(learned))]
        )
        chosen = counter_rng(seed, "replay").permutation(np.sort(old))
        lengths = np.cumsum(store.offsets[chosen + 1] - store.offsets[chosen])
        taken = int(np.searchsorted(lengths, self.replay)) + 1 if self.replay else 0
        return Selection(store, np.sort(np.concatenate([*new, chosen[:taken]])))


@dataclass(frozen=True)
class Decision:
    """How a model is adapted.

    Attributes:
        number: increments since the last rebuild; 0: a rebuild.
        text: of an increment; None: the whole corpus.
        new_tokens: tokens that the initial weights have not learned.
        idle: whether the last adapted model has learned all text already.
    """

    number: int
    reason: str
    new_tokens: int
    text: IncrementText | None = None
    idle: bool = False


def decide(
    store: TokenStore,
    *,
    before: Manifest | None,
    origins: Mapping[str, str],
    recipe: Mapping[str, Any],
    settings: IncrementSettings | None,
    step_tokens: int,
    requested: str = "",
) -> Decision:
    """Continue from the last adapted model, or rebuild: without `settings`, or for a `requested` reason. An increment
    reads at least the `step_tokens` of a step."""
    chain = None if before is None else before.facts.get("chain")
    if chain is None:
        return _rebuild(store, "first run" if before is None else "the last model was written by an earlier version")
    if requested:
        return _rebuild(store, f"requested: {requested}")
    for name, reason in CHANGES.items():
        if chain["recipe"].get(name) != recipe[name]:
            return _rebuild(store, reason)
    learned: dict[str, str] = chain["learned"]
    gone = [name for name, digest in learned.items() if origins.get(name) != digest or name not in store.shards]
    if gone:
        return _rebuild(store, f"text was removed: {len(gone)} of {len(learned)} shards are gone")
    new = [rows for name, rows in store.shards.items() if name not in learned]
    tokens = sum(int(store.offsets[rows.stop] - store.offsets[rows.start]) for rows in new)
    if not tokens:
        return Decision(chain["increment"], "no new text", 0, idle=True)
    if settings is None:
        return _rebuild(store, "adapt.<name>.increment is null")
    if (sampler := family_named(recipe["family"]).sampler) in WHOLE_TEXT:
        return _rebuild(store, f"{recipe['family']}: {WHOLE_TEXT[sampler]}")
    number = chain["increment"] + 1
    if settings.rebuild_every is not None and number % settings.rebuild_every == 0:
        return _rebuild(store, f"adapt.<name>.increment.rebuild_every: {settings.rebuild_every}")
    if 2 * tokens > store.tokens:
        return _rebuild(store, "there is more new than earlier text")
    # A sampler needs the tokens of a step, and next-sentence prediction a second document.
    least = max(step_tokens - tokens, int(sum(map(len, new)) < 2))
    text = IncrementText(learned=tuple(sorted(learned)), replay=max(tokens, least))
    return Decision(number, f"{len(new)} new of {len(store.shards)} shards", tokens, text)


def _rebuild(store: TokenStore, reason: str) -> Decision:
    return Decision(0, reason, store.tokens)


def is_worse(decision: Decision, before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether an increment has raised the loss on held-out text, of a family that has a likelihood."""
    return decision.text is not None and "perplexity" in after and after["loss"] > before["loss"] + WORSE
