"""The stage `adapt`: continued pretraining on the domain corpus, and the forgetting that it causes."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any, Final

from components.cluster.distributed import World
from components.core.artifacts import Manifest, read_json, read_manifest, write_atomic, writing
from components.core.errors import ArtifactError
from components.data.formats import corpus
from components.models.base import LanguageModel
from components.models.encoder import KIND, load_encoder
from components.settings.cluster import ClusterSettings
from components.settings.section import Section, result_settings
from components.settings.training import IncrementSettings, LanguageModelTraining
from components.tokenization import Tokenizer, load_tokenizer
from components.tokenization.store import KIND as TOKENS
from components.tokenization.store import LAYOUT, TokenStore, write_shard
from components.tokenization.tokenize import encode_corpus
from components.training.pretraining.increments import Decision, decide, is_worse
from components.training.pretraining.language_model import LanguageModelRun
from components.training.pretraining.launch import Trained, train_encoder, write_encoder
from components.training.pretraining.perplexity import heldout_sampler, measure
from components.training.rng import counter_seed

HELDOUT: Final = "heldout.arrow"
#: The rate of an increment with fewer steps is lower in proportion.
STEADY_STEPS: Final = 5
#: Peak learning rate of an increment, as a fraction of `training.rate`.
INCREMENT_RATE: Final = 0.25


class AdaptJob(Section):
    """Inputs and output of adaptation.

    Attributes:
        name: of the block in `adapt`, for progress lines and checkpoints; default: the family.
        pretrained: encoder directory with the initial weights. Pieces of `tokenizer` that its vocabulary lacks are
            initialised with the mean of the embeddings.
        tokens, tokenizer: token shards of the domain corpus (or pairs) and the directory of their tokenizer.
        general_tokens, general_corpus: the general corpus, on whose held-out documents forgetting is measured, or None.
        output: encoder directory. The model in it, if there is one, is the start of an increment.
        vectors, vectors_digest: a file of word vectors that fills the static channel, and its expected SHA-256.
        increment: how new text is learned; None: every adaptation starts from `pretrained`.
        rebuild: why a rebuild was requested; empty: it was not.
        epochs: number of passes over the tokens, which replaces the budget of `training`; None: the budget applies.
    """

    name: str = ""
    family: str
    pretrained: Path
    tokens: Path
    tokenizer: Path
    general_tokens: Path | None
    general_corpus: Path | None
    output: Path
    training: LanguageModelTraining
    vectors: Path | None = None
    vectors_digest: str | None = None
    increment: IncrementSettings | None = None
    rebuild: str = ""
    epochs: float | None = None
    seed: int = 0
    code: str = ""
    cluster: ClusterSettings = ClusterSettings()


def adapt(job: AdaptJob) -> Path:
    """Continue the pretraining of an encoder on the domain corpus; returns the encoder directory.

    Its metrics contain the perplexity on held-out text of the domain and of the general corpus, per piece and per word:
    `before_` of the pretrained model, as measured by the last rebuild, and `previous_` of the model from which an
    increment continues. The fact `chain` of the manifest records what the model has learned.

    Raises:
        ArtifactError: an input is incomplete or belongs to another tokenizer.
        TrainingError: the loss is not finite, no space for a checkpoint, or workers died repeatedly.
    """
    name = job.name or job.family
    before = _previous(job.output)
    recipe, store = _recipe(job), TokenStore(job.tokens, "train")
    origins: dict[str, str] = read_manifest(job.tokens, kind=TOKENS).facts["origins"]
    decision = decide(
        store,
        before=before,
        origins=origins,
        recipe=recipe,
        settings=job.increment,
        step_tokens=job.training.batch_size * job.training.window,
        requested=job.rebuild,
    )
    if decision.idle and before is not None:
        print(f"adapt {name}: the adapted model has learned all text already")
        same = job.general_tokens is None or before.facts["general_tokens"] == _general_digest(job)
        return job.output if same else _measured_again(job, before)
    run, trained = _trained(job, decision, store)
    superseded: list[Trained] = []  # its checkpoints are kept until the output is written
    if is_worse(decision, trained.history.before, trained.history.after):
        was, now = (math.exp(measured["loss"]) for measured in (trained.history.before, trained.history.after))
        reason = f"the increment raised the held-out perplexity from {was:.2f} to {now:.2f}"
        decision = Decision(0, reason, store.tokens)
        superseded.append(trained)
        run, trained = _trained(job, decision, store)
    counts = {"new_tokens": decision.new_tokens, "replayed_tokens": _replayed(decision, run)}
    metrics = _forgetting(job, trained.model) | {"increment": decision.number, **counts}
    if decision.text is not None:
        first = read_json(job.output / "metrics.json", made_by="the stage adapt")
        metrics |= {name: value for name, value in first.items() if name.startswith("before_")}
        metrics |= {f"previous_{name}": value for name, value in trained.history.before.items()}
    chain = {
        "increment": decision.number,
        "reason": decision.reason,
        "previous": before.digest if before is not None and decision.text is not None else None,
        "recipe": recipe,
        "learned": {shard: origins[shard] for shard in store.shards if shard in origins},
        **counts,
    }
    # `parent` is the origin of the weights, of an increment, too. The chain has the model between.
    facts = {"parent": read_manifest(job.pretrained).digest, "seed": job.seed, "general_tokens": _general_digest(job)}
    with writing(job.output, kind=KIND) as draft:
        write_encoder(draft, trained, run=run, metrics=metrics)
        draft.facts |= {**facts, "chain": chain}
    for done in (*superseded, trained):
        done.checkpoints.clear()
    return job.output


def _previous(output: Path) -> Manifest | None:
    try:
        return read_manifest(output, kind=KIND, verify=True)
    except ArtifactError:
        return None


def _recipe(job: AdaptJob) -> dict[str, Any]:
    # The entries of `increments.CHANGES`: everything but the text on which the model depends.
    return {
        "family": job.family,
        "settings": {**result_settings(job.training), "epochs": job.epochs},
        "seed": job.seed,
        "code": job.code,
        "pretrained": read_manifest(job.pretrained, kind=KIND).digest,
        "vocabulary": load_tokenizer(job.tokenizer).fingerprint(),
    }


def _trained(job: AdaptJob, decision: Decision, store: TokenStore) -> tuple[LanguageModelRun, Trained]:
    run = _run(job, decision, store)
    print(f"{run.name}: {_words(decision, run)}")
    return run, train_encoder(run, settings=job.cluster)


def _run(job: AdaptJob, decision: Decision, store: TokenStore) -> LanguageModelRun:
    """The training run of a decision. An increment makes as many passes over its text as a rebuild makes over all."""
    name = f"adapt {job.name or job.family}"
    training, parent, seed = job.training, job.pretrained, job.seed
    if job.epochs is not None:
        tokens = max(1, round(job.epochs * store.tokens))
        training = training.model_copy(update={"tokens": tokens, "seconds": None, "passes": None})
    if decision.text is not None and job.increment is not None:
        parent, seed = job.output, counter_seed(job.seed, "increment", decision.number)
        share = decision.text.select(store, seed=seed).tokens / store.tokens
        # The first updates of an optimizer without state have the size of the rate in every coordinate.
        steps = (training.tokens or STEADY_STEPS * store.tokens) * share / (training.batch_size * training.window)
        changes: dict[str, Any] = {
            "tokens": training.tokens and max(1, round(training.tokens * share)),
            "seconds": training.seconds and training.seconds * share,
            "rate": training.rate * INCREMENT_RATE * min(1.0, max(1.0, steps) / STEADY_STEPS),
            # The vocabulary has no new pieces, so no embedding needs an initial value.
            "vectors": False,
        }
        training = training.model_copy(update=changes)
    return LanguageModelRun(
        name=name,
        family=job.family,
        parent=parent.absolute(),
        tokens=job.tokens.absolute(),
        tokenizer=job.tokenizer.absolute(),
        increment=decision.text,
        vectors_file=job.vectors,
        vectors_digest=job.vectors_digest,
        training=training,
        seed=seed,
        code=job.code,
    )


def _replayed(decision: Decision, run: LanguageModelRun) -> int:
    return 0 if decision.text is None else run.text().tokens - decision.new_tokens


def _words(decision: Decision, run: LanguageModelRun) -> str:
    if decision.text is None:
        return f"from the pretrained model, {decision.new_tokens:,} tokens of text ({decision.reason})"
    return (
        f"increment {decision.number} from the last adapted model, {decision.new_tokens:,} new tokens and "
        f"{_replayed(decision, run):,} of earlier text ({decision.reason})"
    )


def _general_digest(job: AdaptJob) -> str | None:
    return None if job.general_tokens is None else read_manifest(job.general_tokens, kind=TOKENS).digest


def _measured_again(job: AdaptJob, before: Manifest) -> Path:
    numbers = read_json(job.output / "metrics.json", made_by="the stage adapt")
    numbers = {name: value for name, value in numbers.items() if not name.startswith("general_")}
    numbers |= _forgetting(job, load_encoder(job.output).model)
    with writing(job.output, kind=KIND, keep=True) as draft:
        # The draft has hard links: files are replaced, not written in place.
        write_atomic(draft.path / "metrics.json", json.dumps(numbers, indent=1, sort_keys=True) + "\n")
        draft.facts |= {**before.facts, "general_tokens": _general_digest(job)}
    return job.output


def _forgetting(job: AdaptJob, adapted: LanguageModel) -> dict[str, float]:
    numbers: dict[str, float] = {}
    if job.general_tokens is None or job.general_corpus is None:
        return numbers
    pretrained = load_encoder(job.pretrained)
    models = {"before": (pretrained.model, pretrained.tokenizer), "after": (adapted, load_tokenizer(job.tokenizer))}
    for when, (model, tokenizer) in models.items():
        general = TokenStore(job.general_tokens, "heldout")
        with tempfile.TemporaryDirectory() as folder:
            # The model has another vocabulary, from the domain corpus or a published model: encode anew.
            if general.tokenizer_fingerprint != tokenizer.fingerprint():
                general = _encoded(job.general_corpus, tokenizer, Path(folder) / "tokens")
            sampler = heldout_sampler(
                job.family,
                general,
                config=model.config,
                pieces=tokenizer.pieces,
                batch_size=job.training.batch_size,
                window=job.training.window,
                workers=1,
            )
            if sampler is not None:
                pieces, world = job.training.heldout, World()
                measured = measure(
                    model, sampler, general, family=job.family, pieces=pieces, precision="float32", world=world
                )
                numbers |= measured.named(f"general_{when}_")
    return numbers


def _encoded(source: Path, tokenizer: Tokenizer, directory: Path) -> TokenStore:
    shards = corpus.shards(source, "heldout")
    encoded = encode_corpus((row for shard in shards for row in corpus.read_rows(shard)), tokenizer=tokenizer)
    with writing(directory, kind=TOKENS) as draft:
        write_shard(
            draft.path / HELDOUT, encoded, vocab_size=tokenizer.vocab_size, pairs=any(map(corpus.holds_pairs, shards))
        )
        draft.facts |= {
            "tokenizer": tokenizer.fingerprint(),
            "vocabulary": tokenizer.vocab_size,
            "layout": LAYOUT,
            "shards": {"heldout": [HELDOUT]},
        }
    return TokenStore(directory, "heldout")
