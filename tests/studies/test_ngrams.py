"""The study ngrams: the perplexity of n-grams on the held-out pieces on which language models are measured."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from components.cluster.distributed import World
from components.core.errors import DataError
from components.models import FAMILIES
from components.models.encoder import build_model
from components.settings.loading import load_params
from components.settings.training import PretrainSettings
from components.studies.frame import Outputs
from components.studies.ngrams import FALLBACK, NgramModel, estimate, measured_positions, ngram_nats
from components.studies.ngrams import run as study
from components.tokenization import load_tokenizer
from components.tokenization.special import END
from components.tokenization.store import TokenStore
from components.training.pretraining.perplexity import heldout_sampler, measure
from tests.training.helpers import lm_settings, make_inputs, tokenizer_of

CAUSAL = sorted(name for name in FAMILIES if FAMILIES[name].objective == "causal")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def test_the_numbers(inputs, params_file, monkeypatch):
    raw = yaml.safe_load(params_file.read_text())
    raw["run"]["families"] = ["ulmfit", "bert"]
    (params_file.parent / "out").symlink_to(inputs)
    raw["tokenizer"]["kinds"] = ["wordpiece"]
    for block in raw["pretrain"].values():
        block["tokenizer"] = "wordpiece"
    params_file.write_text(yaml.safe_dump(raw))
    params = load_params(params_file)
    read = 150
    for stage, facts in (("pretrain", {"perplexity_per_word": 64.0, "tokens": read}), ("adapt", {"tokens": 10**9})):
        (inputs / "metrics" / stage).mkdir(parents=True)
        (inputs / "metrics" / stage / "ulmfit.json").write_text(json.dumps(facts))
    monkeypatch.setattr("components.studies.ngrams.measured_positions", lambda *_: np.arange(200))
    actual = study(Outputs(params), order=3, character_order=4)
    assert actual.numbers.keys() == {"ulmfit-pretrain", "ulmfit-adapt"}, "a masked model has no comparable perplexity"
    heldout = TokenStore(inputs / "tokens" / "general-wordpiece", "heldout")
    nats = ngram_nats(inputs / "tokens" / "general-wordpiece", order=3, most=read)
    numbers = actual.numbers["ulmfit-pretrain"]
    expected = np.exp(nats[:200].mean() * heldout.tokens / heldout.words)
    assert numbers["counted"] == read, "n-grams count as much text as the model has read"
    train = TokenStore(inputs / "tokens" / actual.numbers["ulmfit-adapt"]["vocabulary"], "train")
    assert actual.numbers["ulmfit-adapt"]["counted"] == train.tokens > read, "and no more than there is"
    assert numbers["ngrams_per_word"] == pytest.approx(expected) and numbers["model_per_word"] == 64.0
    assert actual.chapter.tables[0].rows[0][-1] == f"{expected:,.1f}"


@pytest.mark.parametrize("family", CAUSAL)
def test_the_same_pieces_as_the_language_model(inputs, family, monkeypatch):
    kind = tokenizer_of(family)
    tokens = inputs / "tokens" / f"general-{kind}"
    store = TokenStore(tokens, "heldout")
    sizes = dict(FAMILIES[family].tiny) | ({"direction": "backward"} if family == "ulmfit" else {})
    training = lm_settings(batch_size=4, window=8)
    block = PretrainSettings(tokenizer=kind, model=sizes, training=training)
    positions = measured_positions(tokens, family, block, training)
    assert positions is not None
    stream = store.span(0, store.tokens)
    torch.manual_seed(0)
    model = build_model(family, vocabulary=store.vocab_size, settings=sizes)
    model.bind(load_tokenizer(inputs / "tokenizer" / f"general-{kind}"))
    sampler = heldout_sampler(family, store, config=model.config, pieces=(), batch_size=4, window=8, workers=1)
    assert sampler is not None
    seen: list[torch.Tensor] = []
    losses = model.losses

    def watched(batch, carry=()):
        seen.append(batch["targets"].ravel())
        return losses(batch, carry)

    monkeypatch.setattr(model, "losses", watched)
    measure(model, sampler, store, family=family, pieces=32_768, precision="float32", world=World())
    np.testing.assert_array_equal(stream[positions], torch.cat(seen).numpy())


A, B, C, D = 5, 6, 7, 8


def stream(documents: Sequence[Sequence[int]]) -> np.ndarray:
    return np.asarray([piece for document in documents for piece in (*document, END)], dtype=np.int64)


def probabilities(model: NgramModel, *document: int) -> list[float]:
    """Of the pieces of a document, its END included."""
    return np.exp(model.log_probs(stream([document]))).tolist()


def reference(documents: Sequence[Sequence[int]], order: int, vocabulary: int):
    """p(piece | context) by dictionaries of tuples, from the definition."""
    texts = [("^", *document, "$") for document in documents]
    seen = [Counter() for _ in range(order + 1)]
    for text in texts:
        for length in range(1, order + 1):
            for start in range(1 if length == 1 else 0, len(text) - length + 1):
                seen[length][text[start : start + length]] += 1
    values: list[dict] = [{} for _ in range(order + 1)]
    for length in range(1, order + 1):
        before = defaultdict(set)
        if length < order:
            for ngram in seen[length + 1]:
                before[ngram[1:]].add(ngram[0])
        for ngram, number in seen[length].items():
            whole = length == order or (length > 1 and ngram[0] == "^")
            values[length][ngram] = number if whole else len(before[ngram])
    discounts: list[tuple[float, ...]] = [()]
    for length in range(1, order + 1):
        n = [sum(value == size for value in values[length].values()) for size in range(5)]
        chosen = FALLBACK
        if all(n[1:]):
            y = n[1] / (n[1] + 2 * n[2])
            estimated = tuple(size - (size + 1) * y * n[size + 1] / n[size] for size in (1, 2, 3))
            chosen = estimated if all(0 <= value <= size for size, value in enumerate(estimated, 1)) else FALLBACK
        discounts.append((0, *chosen))

    def p(piece, context: tuple) -> float:
        length = len(context) + 1
        below = p(piece, context[1:]) if context else 1 / vocabulary
        following = {g: value for g, value in values[length].items() if g[:-1] == context}
        total = sum(following.values())
        if not total:
            return below
        value = following.get((*context, piece), 0)
        freed = sum(discounts[length][min(other, 3)] for other in following.values())
        return max(value - discounts[length][min(value, 3)], 0) / total + freed / total * below

    return p, discounts


@pytest.mark.parametrize("order", [1, 2, 4])
def test_equal_to_an_independent_implementation(order):
    rng = np.random.default_rng(3)
    # Skewed, so that the numbers n1 to n4 of short n-grams are not 0.
    documents = [(4 + rng.geometric(0.25, rng.integers(1, 12))).clip(max=24).tolist() for _ in range(60)]
    held = [(4 + rng.geometric(0.2, rng.integers(1, 9))).clip(max=26).tolist() for _ in range(20)]
    model = estimate(stream(documents), order=order, vocabulary=30)
    p, discounts = reference(documents, order, 30)
    for length in range(1, order + 1):
        assert model.lengths[length - 1].discounts[1:] == pytest.approx(discounts[length][1:]), length
    expected = []
    for document in held:
        text = ("^", *document, "$")
        expected += [math.log(p(text[at], text[max(0, at - order + 1) : at])) for at in range(1, len(text))]
    np.testing.assert_allclose(model.log_probs(stream(held)), expected, rtol=1e-9)


def test_documents_shorter_than_the_longest_ngrams():
    model = estimate(stream([[A], [B]]), order=5, vocabulary=6)
    assert [len(entries.keys) for entries in model.lengths] == [3, 4, 2]
    assert all(0 < value < 1 for value in probabilities(model, A, B, C, D, A, B))
    with pytest.raises(DataError, match="there are no tokens to count"):
        estimate(stream([]), order=2, vocabulary=6)
