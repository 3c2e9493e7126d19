"""The stage `tokenizer`: the vocabulary of a corpus stays until its fit falls below a bound.

Two directories: the tokenizer, which does not change while the vocabulary stays, so that only new text is tokenized;
and the record of the stage, which names the text from which the vocabulary was learned and the last decision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from components.artifacts import Manifest, read_manifest, write_atomic, writing
from components.errors import ArtifactError
from components.formats import corpus
from components.settings.tokenizer import RefitSettings, SubwordSettings
from components.tokenization.base import load_tokenizer
from components.tokenization.report import count_words, report_on_words
from components.tokenization.train import FIT, TokenizerJob, sample_rows, train_tokenizer
from components.tokenization.train import KIND as TOKENIZER

KIND: Final = "vocabulary"


class VocabularyJob(TokenizerJob):
    """Inputs and outputs of the stage.

    Attributes:
        record: directory of the record.
        rebuild: why the vocabulary has to be learned again; empty: its fit decides.
        code: digest of the code and libraries that the stage can reach.
    """

    record: Path
    rebuild: str = ""
    code: str = ""


@dataclass(frozen=True)
class Decision:
    """Whether a vocabulary is learned again, why, and its fit on the new text that was judged."""

    learn: bool
    reason: str
    fit: dict[str, float]


def fit_vocabulary(job: VocabularyJob) -> Path:
    """Learn the vocabulary of a corpus, or keep the one of the last run; returns the directory of the record.

    It is learned again if there is none, if settings, code or libraries have changed, if text was removed, or if its
    fit on new text is out of bounds (`RefitSettings`).

    Raises:
        ArtifactError, DataError: as in `train_tokenizer`.
    """
    texts = read_manifest(job.corpus, kind=corpus.KIND)
    settings = job.settings.model_dump(mode="json", exclude={"refit"})
    recipe = {"kind": job.kind, "settings": settings, "code": job.code}
    before = _previous(job)
    decision = _decide(job, texts, recipe=recipe, before=before)
    learned = _shards(texts)
    if decision.learn:
        train_tokenizer(job)
    elif before is not None:
        learned = before.facts["learned"]
    print(f"tokenizer {job.output.name}: {'learned' if decision.learn else 'kept'} ({decision.reason})")
    made = read_manifest(job.output, kind=TOKENIZER)
    numbers = json.loads((job.output / "metrics.json").read_text(encoding="utf-8"))
    numbers |= {"learned": int(decision.learn), **{f"new_{name}": value for name, value in decision.fit.items()}}
    with writing(job.record, kind=KIND) as draft:
        write_atomic(draft.path / "metrics.json", json.dumps(numbers, indent=1) + "\n")
        draft.facts |= {
            "recipe": recipe,
            "tokenizer": made.facts["fingerprint"],
            "learned": learned,
            "fit": {name: made.facts[name] for name in FIT},
            "decision": decision.reason,
        }
    return job.record


def _previous(job: VocabularyJob) -> Manifest | None:
    """The last record; None if there is none, or if it belongs to another tokenizer than the one in `job.output`."""
    try:
        record = read_manifest(job.record, kind=KIND, verify=True)
        made = read_manifest(job.output, kind=TOKENIZER, verify=True)
    except ArtifactError:
        return None
    return record if record.facts["tokenizer"] == made.facts["fingerprint"] else None


def _shards(texts: Manifest) -> dict[str, str]:
    """Name of a train shard -> its digest."""
    return {name: str(texts.files[name]["sha256"]) for name in texts.facts["shards"]["train"]}


def _decide(job: VocabularyJob, texts: Manifest, *, recipe: dict[str, Any], before: Manifest | None) -> Decision:
    if before is None:
        return Decision(True, "first run", {})
    if job.rebuild:
        return Decision(True, f"requested: {job.rebuild}", {})
    if before.facts["recipe"] != recipe:
        changed = before.facts["recipe"]["code"] != recipe["code"]
        return Decision(True, "code or libraries changed" if changed else "settings changed", {})
    now, learned = _shards(texts), before.facts["learned"]
    new = [job.corpus / name for name, digest in now.items() if learned.get(name) != digest]
    if any(now.get(name) != digest for name, digest in learned.items()):
        return Decision(True, "text was removed or written again", {})
    if not new:
        return Decision(False, "no new text", {})
    if job.settings.refit is None:
        return Decision(True, "the corpus changed, and tokenizer.refit is null", {})
    return _judge(job, new, before=before.facts["fit"], bounds=job.settings.refit)


def _judge(job: VocabularyJob, new: list[Path], *, before: dict[str, float], bounds: RefitSettings) -> Decision:
    """Compare the fit on a sample of the new text with that on the text from which the vocabulary was learned."""
    published = getattr(job.settings, job.kind, None)
    if isinstance(published, SubwordSettings) and published.source is not None:
        return Decision(False, "a published vocabulary is not learned", {})
    tokenizer = load_tokenizer(job.output)
    texts = (text for text, *_ in sample_rows(new, megabytes=job.settings.sample_megabytes))
    report = report_on_words(tokenizer, count_words(map(tokenizer.segmentation.spaced, texts)))
    words, now = int(report["words"]), {name: float(report[name]) for name in FIT}
    if words < bounds.words:
        return Decision(False, f"fewer than {bounds.words:,} new words, too few to judge its fit", {})
    compared = (
        f"{now['pieces_per_word']:.3f} pieces per word and {now['unknown_rate']:.2%} unknown on {words:,} new "
        f"words; {before['pieces_per_word']:.3f} and {before['unknown_rate']:.2%} where it was learned"
    )
    limits = {
        "pieces_per_word": bounds.pieces_per_word * before["pieces_per_word"],
        "unknown_rate": bounds.unknown_rate + before["unknown_rate"],
    }
    exceeded = next((name for name, limit in limits.items() if now[name] > limit), None)
    reason = compared if exceeded is None else f"more than tokenizer.refit.{exceeded} allows: {compared}"
    return Decision(exceeded is not None, reason, now | {"words": words})
