"""The stage `adapt`: continued pretraining on the domain corpus, and the forgetting that it causes."""

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
    """Inputs and output of adaptation.

    Attributes:
        name: of the block in `adapt`, for progress lines and checkpoints; default: the family.
        pretrained: encoder directory with the initial weights. If its vocabulary differs from that of `tokenizer`,
            shared pieces keep their embeddings and the others are initialised with the mean.
        tokens, tokenizer: token shards of the domain corpus and the directory of their tokenizer; for a translation
            family those of the domain's pairs, because text alone has no translations.
        general_tokens: token shards of the general corpus.
        general_corpus: the general corpus; forgetting is measured on its held-out documents.
        output: encoder directory.
        training: budget, batches, optimizer, schedule.
        seed: of the batches and dropout.
        code: digest of the code and libraries that the stage can reach; part of the key of the checkpoints.
        epochs: number of passes over the tokens, which replaces the budget of `training`; None: the budget applies.
        cluster: where training runs; does not affect the result.
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
    """Continue the pretraining of an encoder on the domain corpus; returns the encoder directory.

    Its metrics contain the perplexity on held-out text of the domain and of the general corpus, before and after
    adaptation, per piece and per word. Values per word are comparable between vocabularies.

    Raises:
        ArtifactError: an input is incomplete or belongs to another tokenizer.
        TrainingError: the loss is not finite, no space for a checkpoint, or workers died repeatedly.
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
            # The model has another vocabulary, that of the domain corpus or of a published model: encode anew.
            if general.tokenizer_fingerprint != tokenizer.fingerprint():
                general = _encoded(job.general_corpus, tokenizer, Path(folder) / "tokens")
            numbers |= _general_perplexity(model, general, job=job, pieces=tokenizer.pieces, prefix=f"general_{when}_")
    with writing(job.output, kind=KIND) as draft:
        write_encoder(draft, trained, run=run, metrics=numbers)
    trained.checkpoints.clear()
    return job.output


def _general_perplexity(
    model: LanguageModel, store: TokenStore, *, job: AdaptJob, pieces: list[str], prefix: str
) -> dict[str, float]:
    """Perplexity on general held-out text; empty if there is too little text."""
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


def _encoded(source: Path, tokenizer: Tokenizer, directory: Path) -> TokenStore:
    """The held-out documents (or pairs) of a corpus, encoded with another tokenizer."""
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
