"""The stage `adapt`: pretraining that goes on from given weights, and what it forgets by it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from components.artifacts import writing
from components.formats import corpus
from components.models.base import LanguageModel
from components.models.encoder import KIND, load_encoder
from components.pretraining.language_model import FINAL_PIECES, LanguageModelRun
from components.pretraining.launch import train_encoder, write_encoder
from components.pretraining.perplexity import heldout_sampler, measure
from components.settings.cluster import ClusterSettings
from components.settings.section import Section
from components.settings.training import LanguageModelTraining
from components.tokenization import Tokenizer, load_tokenizer
from components.tokenization.store import KIND as TOKENS
from components.tokenization.store import LAYOUT, TokenStore, write_shard
from components.tokenization.tokenize import encode_corpus
from components.training.distributed import World

HELDOUT: Final = "heldout.arrow"


class AdaptJob(Section):
    """What adaptation reads and writes.

    Attributes:
        name: of the block in `adapt`, for progress lines and checkpoints; the family's without it.
        pretrained: encoder directory that it starts from; where its vocabulary differs from `tokenizer`'s, pieces that
            both share keep their rows and the others start at the mean.
        tokens, tokenizer: the domain's token shards and the tokenizer that made them; for a family that learns to
            translate, of the domain's pairs: text alone teaches no translation.
        general_tokens: token shards of the general corpus.
        general_corpus: the general corpus; its held-out documents show what is forgotten.
        output: encoder directory.
        code: digest of the code and libraries that the stage can reach; part of the key of the checkpoints.
        epochs: how often the tokens are read, in place of the training's budget; None: its own.
        cluster: where it runs; changes nothing in what is learned.
    """

    name: str = ""
    family: str
    pretrained: Path
    tokens: Path
    tokenizer: Path
    general_tokens: Path
    general_corpus: Path
    output: Path
    training: LanguageModelTraining
    epochs: float | None = None
    seed: int = 0
    code: str = ""
    cluster: ClusterSettings = ClusterSettings()


def adapt(job: AdaptJob) -> Path:
    """Go on training a pretrained encoder on the domain's text; returns the encoder directory.

    Its metrics hold the perplexity of the domain's and of the general held-out text, before and after; per word, so
    that a change of vocabulary does not hide what was forgotten.

    Raises:
        ArtifactError: an input is incomplete or was made with another tokenizer.
        TrainingError: the loss is no longer finite, no space for a checkpoint, workers that keep dying.
    """
    training = job.training
    if job.epochs is not None:
        read = max(1, round(job.epochs * TokenStore(job.tokens, "train").tokens))
        training = training.model_copy(update={"tokens": read, "seconds": None})
    run = LanguageModelRun(
        name=f"adapt {job.name or job.family}",
        family=job.family,
        parent=job.pretrained.absolute(),
        tokens=job.tokens.absolute(),
        tokenizer=job.tokenizer.absolute(),
        training=training,
        seed=job.seed,
        code=job.code,
    )
    trained = train_encoder(run, settings=job.cluster)
    pretrained = load_encoder(job.pretrained)
    numbers: dict[str, float] = {}
    models = {
        "before": (pretrained.model, pretrained.tokenizer),
        "after": (trained.model, load_tokenizer(job.tokenizer)),
    }
    for when, (model, tokenizer) in models.items():
        general = TokenStore(job.general_tokens, "heldout")
        with tempfile.TemporaryDirectory() as folder:
            # Another vocabulary: that of the domain, or that of a published model.
            if general.tokenizer_fingerprint != tokenizer.fingerprint():
                general = _encoded_again(job.general_corpus, tokenizer, Path(folder) / "tokens")
            numbers |= _general_perplexity(model, general, job=job, pieces=tokenizer.pieces, prefix=f"general_{when}_")
    with writing(job.output, kind=KIND) as draft:
        write_encoder(draft, trained, run=run, metrics=numbers)
    trained.checkpoints.clear()
    return job.output


def _general_perplexity(
    model: LanguageModel, store: TokenStore, *, job: AdaptJob, pieces: list[str], prefix: str
) -> dict[str, float]:
    """Perplexity of the general held-out text; nothing if there is too little of it."""
    sampler = heldout_sampler(
        job.family,
        store,
        config=model.config,
        pieces=pieces,
        batch_size=job.training.batch_size,
        window=job.training.window,
        workers=1,
    )
    if sampler is None:
        return {}
    measured = measure(
        model, sampler, store, family=job.family, pieces=FINAL_PIECES, precision="float32", world=World()
    )
    return measured.named(prefix)


def _encoded_again(source: Path, tokenizer: Tokenizer, directory: Path) -> TokenStore:
    """The held-out documents (or pairs) of a corpus in the pieces of another tokenizer."""
    shards = corpus.shards(source, "heldout")
    encoded = encode_corpus((row for shard in shards for row in corpus.read_rows(shard)), tokenizer=tokenizer)
    with writing(directory, kind=TOKENS) as draft:
        write_shard(
            draft.path / HELDOUT,
            encoded,
            vocab_size=tokenizer.vocab_size,
            pairs=any(map(corpus.holds_pairs, shards)),
        )
        draft.facts |= {
            "tokenizer": tokenizer.fingerprint(),
            "vocabulary": tokenizer.vocab_size,
            "layout": LAYOUT,
            "shards": {"heldout": [HELDOUT]},
        }
    return TokenStore(directory, "heldout")
