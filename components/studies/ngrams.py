"""Is a language model better than n-grams of the same text? Both predict the same held-out pieces."""

from components.core.artifacts import read_json
from components.models.encoder import count_parameters
from components.studies.frame import Measured, Outputs, Row, Sheet
from components.studies.kneser_ney import log_probs
from components.studies.losses import gain, groups
from components.tokenization.special import MASK, PAD, START
from components.tokenization.store import TokenStore
from components.training.pretraining.perplexity import perplexity_of

#: Column of the difference to n-grams.
MINUS = "minus n-grams, nats per piece"
#: Columns of the perplexities of both.
FORMS = {"perplexity per word": ",.1f", "of n-grams": ",.1f"}
#: Special pieces that no text contains.
NEVER = (PAD, START, MASK)


def measure(
    outputs: Outputs,
    *,
    encoder: str = "",
    order: int = 5,
    pieces: int = 20_000_000,
    positions: int = 2048,
    longest: int = 64,
) -> Measured:
    """The losses of every causal model and of n-grams of as many pieces of the same text as it has read, on the same
    held-out pieces; and those of shorter n-grams and contexts."""
    rows, points = list[Row](), list[Row]()
    for group in groups(outputs, encoder, longest=longest, step=1, positions=positions):
        heldout, train = group.heldout, TokenStore(outputs.of("tokens", group.tokens), "train")
        text, vocabulary = heldout.span(0, heldout.tokens), heldout.vocab_size - len(NEVER)
        for name, losses_CP in group.losses.items():
            counted = min(pieces, _tokens_read(outputs, name) or pieces, train.tokens)
            learned = train.span(0, counted)
            ngrams = [
                -log_probs(text, learned=learned, order=n, vocabulary=vocabulary)[group.ends]
                for n in range(1, order + 1)
            ]
            row = {"encoder": name, "vocabulary": group.tokens, "parameters": count_parameters(group.models[name])}
            row |= {"n": order, "read": counted}
            for column, nats in zip(FORMS, (losses_CP[-1], ngrams[-1]), strict=True):
                row[column] = perplexity_of(float(nats.mean()), len(nats), heldout).perplexity_per_word
            rows.append(row | {MINUS: gain(losses_CP[-1], ngrams[-1])})
            for label, first, of in ((name, 1, losses_CP), (f"n-grams of {group.tokens}, {name}", 0, ngrams)):
                points += [{"model": label, "context": n, "loss": loss.mean()} for n, loss in enumerate(of, first)]
    drawings = Sheet(points, "Held-out text", value="loss", x="context").drawing()
    return Measured([Sheet(rows, "Held-out text", FORMS, MINUS, reference=0.0)], figures=drawings)


def _tokens_read(outputs: Outputs, name: str) -> int | None:
    """Number of pieces that the last language model training of an encoder has read."""
    block, start = outputs.split_name(name)
    stage = "adapt" if start == "adapted" else "pretrain"
    metrics = read_json(outputs.out / "metrics" / stage / f"{block}.json", made_by=f"the stage {stage}")
    return int(metrics["tokens"]) if metrics.get("tokens") else None
