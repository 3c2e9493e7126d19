"""The stage `tokenizer`: learn a vocabulary from a sample of a corpus, count its pieces, and report how it fits.

The vocabulary of a corpus stays until its fit falls below a bound. There are two directories: the tokenizer, which does
not change while the vocabulary stays, so that only new text is tokenized; and the record of the stage, which names the
text from which the vocabulary was learned and the last decision.
"""

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.core.artifacts import Manifest, json_of, read_manifest, write_atomic, writing
from components.core.errors import ArtifactError, DataError
from components.data.formats import corpus
from components.data.segmenters import Segmentation
from components.settings.section import Section, TokenizerKind
from components.settings.tokenizer import SubwordSettings, TokenizerSettings
from components.tokenization.base import KINDS, Tokenizer, load_tokenizer
from components.tokenization.bpe import train_bpe
from components.tokenization.char import train_char
from components.tokenization.published import published_tokenizer
from components.tokenization.special import END, FIRST_ORDINARY, UNK
from components.tokenization.store import measure
from components.tokenization.unigram import train_unigram
from components.tokenization.word import train_open_word, train_word
from components.tokenization.wordpiece import train_wordpiece

NO_LETTERS = "none"


def count_words(spaced: Iterable[str]) -> Counter[str]:
    """Counts of the words between white space in segmented texts."""
    return Counter(word for text in spaced for word in text.split())


def report_on_words(tokenizer: Tokenizer, counts: Counter[str]) -> dict[str, Any]:
    """How well `tokenizer` fits a text, from counts of the words between white space, after segmentation of languages
    without spaces. A word has the script of its first letter; `vocabulary` of a script is its number of pieces."""
    words = list(counts)
    times = np.fromiter(counts.values(), dtype=np.int64, count=len(words))
    # In running text most words follow a space.
    ids, offsets = tokenizer.encode_ragged([f" {word}" for word in words] if tokenizer.leads_with_space else words)
    pieces = times * np.diff(offsets)
    before = np.concatenate(([0], np.cumsum(ids == UNK)))
    unknown = times * (before[offsets[1:]] - before[offsets[:-1]])
    characters = times * np.fromiter(map(len, words), dtype=np.int64, count=len(words))

    ordinary = range(FIRST_ORDINARY, tokenizer.vocab_size)
    continuing = sum(map(tokenizer.continues, ordinary))
    bare = [tokenizer.surface(id_) for id_ in ordinary]
    of_vocabulary = Counter(map(script_of, bare))

    members: dict[str, list[int]] = defaultdict(list)
    for index, word in enumerate(words):
        members[script_of(word)].append(index)
    scripts = {}
    for script, rows in sorted(members.items(), key=lambda item: -int(times[item[1]].sum())):
        scripts[script] = {
            "words": int(times[rows].sum()),
            "share_of_words": _ratio(times[rows].sum(), times.sum()),
            "pieces_per_word": _ratio(pieces[rows].sum(), times[rows].sum()),
            "unknown_rate": _ratio(unknown[rows].sum(), pieces[rows].sum()),
            "vocabulary": of_vocabulary[script],
        }
    return {
        "kind": tokenizer.kind,
        "vocabulary": tokenizer.vocab_size,
        "alphabet": len(set("".join(bare))),
        "non_initial_share": _ratio(continuing, len(ordinary)),
        "words": int(times.sum()),
        "pieces_per_word": _ratio(pieces.sum(), times.sum()),
        "characters_per_piece": _ratio(characters.sum(), pieces.sum()),
        "unknown_rate": _ratio(unknown.sum(), pieces.sum()),
        "scripts": scripts,
    }


def script_of(word: str) -> str:
    """The script of the first letter of `word` ("latin", "thai", "cjk"), from its Unicode name; else "none"."""
    return next((_script(character) for character in word if character.isalpha()), NO_LETTERS)


@cache
def _script(character: str) -> str:
    # The compatibility form assigns full-width and mathematical letters to their script.
    plain = unicodedata.normalize("NFKC", character)[0]
    return unicodedata.name(plain, NO_LETTERS).split()[0].lower()


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else 0.0


KIND: Final = "tokenizer"
#: The numbers that say how a vocabulary fits a text.
FIT: Final = ("pieces_per_word", "unknown_rate")
#: `auto` becomes `none` if a smaller share of the sample's texts is in a script without spaces: the vocabulary would
#: have too few of their words.
SEGMENTED_SHARE: Final = 0.001


class TokenizerJob(Section):
    """Inputs and output of the stage. Both sides of the corpus of `pairs`, if any, are also read; the pieces of the
    targets are counted, and from their counts a translation model initialises its output bias."""

    corpus: Path
    pairs: Path | None = None
    output: Path
    kind: TokenizerKind
    settings: TokenizerSettings


def train_tokenizer(job: TokenizerJob) -> Path:
    """Learn the vocabulary of `job.kind` from the train split of `job.corpus`, or import a published one.

    Raises:
        ArtifactError: the corpus is incomplete or damaged, or a published vocabulary has another kind or digest.
        DataError: the corpus is empty or yields fewer pieces than requested.
    """
    source = read_manifest(job.corpus, kind=corpus.KIND)
    settings = job.settings
    texts = list(sample(job.corpus, megabytes=settings.sample_megabytes))
    if not texts:
        raise DataError(f"{job.corpus}: the train split has no documents; add raw text")
    targets: list[str] = []
    if job.pairs is not None:
        pairs = list(sample_rows(corpus.shards(job.pairs, "train"), megabytes=settings.sample_megabytes))
        texts += [side for pair in pairs for side in pair]
        targets = [target for _, target in pairs]
    segmentation = choose_segmentation(texts)
    cls = KINDS[job.kind]

    def cut(texts: list[str]) -> list[str]:
        # A character vocabulary must not contain inserted separators.
        return [segmentation.spaced(text, cls.separator) for text in texts] if cls.segmented else texts

    published = getattr(settings, job.kind, None)
    if isinstance(published, SubwordSettings) and published.source is not None:
        tokenizer = published_tokenizer(Path(published.source), kind=job.kind, digest=published.digest)
        segmentation = tokenizer.segmentation
        count_pieces(tokenizer, cut(texts))
    else:
        tokenizer = fit(cut(texts), kind=job.kind, settings=settings, segmentation=segmentation)
    if targets:
        count_pieces(tokenizer, cut(targets))
    report = report_on_words(tokenizer, count_words(map(segmentation.spaced, texts)))
    metrics: dict[str, Any] = {name: value for name, value in report.items() if isinstance(value, int | float)} | {
        "sample_documents": len(texts),
        "sample_characters": sum(map(len, texts)),
    }
    with writing(job.output, kind=KIND) as draft:
        tokenizer.save(draft.path)
        for name, content in (("report.json", report), ("metrics.json", metrics)):
            write_atomic(draft.path / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        draft.facts |= {"fingerprint": tokenizer.fingerprint(), "corpus": source.digest, **metrics}
    return job.output


def choose_segmentation(texts: list[str]) -> Segmentation:
    """The segmentation of a vocabulary: by the language of each text, or none if too few of `texts` need it."""
    segmentation = Segmentation("auto")
    segmented = sum(segmentation.choose(text) is not None for text in texts)
    return segmentation if segmented >= SEGMENTED_SHARE * len(texts) else Segmentation("none")


def fit(texts: list[str], *, kind: str, settings: TokenizerSettings, segmentation: Segmentation) -> Tokenizer:
    """Learn a tokenizer and its frequencies from `texts`, which are segmented unless the kind ignores segmentation.

    Raises:
        DataError: the texts yield fewer pieces than requested.
    """
    trainers: dict[str, tuple[Callable[..., Tokenizer], Section]] = {
        "wordpiece": (train_wordpiece, settings.wordpiece),
        "word": (train_word, settings.word),
        "open_word": (train_open_word, settings.word),
        "bpe": (train_bpe, settings.bpe),
        "unigram": (train_unigram, settings.unigram),
        "char": (train_char, settings.char),
    }
    train, block = trainers[kind]
    tokenizer = train(texts, settings=block, segmentation=segmentation)
    count_pieces(tokenizer, texts)
    return tokenizer


def count_pieces(tokenizer: Tokenizer, texts: list[str]) -> None:
    """Set the frequencies of a tokenizer to the counts of its pieces in `texts`, with one END per text."""
    ids, _ = tokenizer.encode_ragged(texts)
    tokenizer.frequencies = np.bincount(ids, minlength=tokenizer.vocab_size).astype(np.int64)
    tokenizer.frequencies[END] = len(texts)


def sample(directory: Path, *, megabytes: float) -> Iterator[str]:
    return (text for text, *_ in sample_rows(corpus.shards(directory, "train"), megabytes=megabytes))


def sample_rows(shards: Sequence[Path], *, megabytes: float) -> Iterator[tuple[str, ...]]:
    """A deterministic sample of rows, (text,) or (text, target), evenly spaced, of about `megabytes` at most."""
    share = min(1.0, megabytes * 1e6 / max(1, sum(measure(shard).text_bytes for shard in shards)))
    for number, row in enumerate(row for shard in shards for row in corpus.read_rows(shard)):
        if int((number + 1) * share) > int(number * share):
            yield row


RECORD: Final = "vocabulary"


class VocabularyJob(TokenizerJob):
    """Inputs and outputs of the stage. `rebuild`: why it has to be learned again; empty: its fit decides. A vocabulary
    of pairs is learned again whenever the corpus or the pairs change."""

    record: Path
    rebuild: str = ""
    code: str = ""


#: Maximum ratio of the pieces per word of new text and of the text from which a vocabulary was learned, maximum
#: increase of the share of unknown pieces, and least number of words of new text that is judged.
MOST_PIECES, MOST_UNKNOWN, NEW_WORDS = 1.1, 0.02, 10_000


@dataclass(frozen=True)
class Decision:
    """Whether a vocabulary is learned again, why, and its fit on the new text that was judged."""

    learn: bool
    reason: str
    fit: dict[str, float]


def fit_vocabulary(job: VocabularyJob) -> Path:
    """Learn the vocabulary of a corpus, or keep the one of the last run; returns the directory of the record.

    It is learned again if there is none, if settings, code or libraries have changed, if text was removed, or if its
    fit on new text is out of bounds.

    Raises:
        ArtifactError, DataError: as in `train_tokenizer`.
    """
    texts = read_manifest(job.corpus, kind=corpus.KIND)
    settings = job.settings.model_dump(mode="json")
    recipe = {"kind": job.kind, "settings": settings, "code": job.code}
    before = _previous(job)
    made_of = {"corpus": texts.digest, "recipe": recipe}
    if job.pairs is not None:
        made_of["pairs"] = read_manifest(job.pairs, kind=corpus.KIND).digest
    if before is not None and not job.rebuild and made_of.items() <= before.facts.items():
        # The stage is repeated although it has ended: the run was killed before DVC had recorded its end. The record of
        # the first execution stays, because this one has nothing to learn.
        return job.record
    decision = _decide(job, texts, recipe=recipe, before=before)
    learned = _shards(texts)
    if decision.learn:
        train_tokenizer(job)
    elif before is not None:
        learned = before.facts["learned"]
    print(f"tokenizer {job.output.name}: {'learned' if decision.learn else 'kept'} ({decision.reason})")
    made = read_manifest(job.output, kind=KIND)
    numbers = json_of(job.output / "metrics.json")
    numbers |= {"learned": int(decision.learn), **{f"new_{name}": value for name, value in decision.fit.items()}}
    with writing(job.record, kind=RECORD) as draft:
        write_atomic(draft.path / "metrics.json", json.dumps(numbers, indent=1) + "\n")
        draft.facts |= {
            **made_of,
            "tokenizer": made.facts["fingerprint"],
            "learned": learned,
            "fit": {name: made.facts[name] for name in FIT},
            "decision": decision.reason,
        }
    return job.record


def _previous(job: VocabularyJob) -> Manifest | None:
    try:
        record = read_manifest(job.record, kind=RECORD, verify=True)
        made = read_manifest(job.output, kind=KIND, verify=True)
    except ArtifactError:
        return None
    return record if record.facts["tokenizer"] == made.facts["fingerprint"] else None


def _shards(texts: Manifest) -> dict[str, str]:
    return {name: str(texts.files[name]["sha256"]) for name in texts.facts["shards"]["train"]}


def _decide(job: VocabularyJob, texts: Manifest, *, recipe: dict[str, Any], before: Manifest | None) -> Decision:
    if before is None:
        return Decision(True, "first run", {})
    if job.rebuild:
        return Decision(True, f"requested: {job.rebuild}", {})
    if before.facts["recipe"] != recipe:
        changed = before.facts["recipe"]["code"] != recipe["code"]
        return Decision(True, "code or libraries changed" if changed else "settings changed", {})
    if job.pairs is not None:
        return Decision(True, "the corpus or the pairs changed", {})
    now, learned = _shards(texts), before.facts["learned"]
    new = [job.corpus / name for name, digest in now.items() if learned.get(name) != digest]
    if any(now.get(name) != digest for name, digest in learned.items()):
        return Decision(True, "text was removed or written again", {})
    if not new:
        return Decision(False, "no new text", {})
    return _judge(job, new, before=before.facts["fit"])


def _judge(job: VocabularyJob, new: list[Path], *, before: dict[str, float]) -> Decision:
    """Compare the fit on a sample of the new text with that on the text from which the vocabulary was learned."""
    published = getattr(job.settings, job.kind, None)
    if isinstance(published, SubwordSettings) and published.source is not None:
        return Decision(False, "a published vocabulary is not learned", {})
    tokenizer = load_tokenizer(job.output)
    texts = (text for text, *_ in sample_rows(new, megabytes=job.settings.sample_megabytes))
    report = report_on_words(tokenizer, count_words(map(tokenizer.segmentation.spaced, texts)))
    words, now = int(report["words"]), {name: float(report[name]) for name in FIT}
    if words < NEW_WORDS:
        return Decision(False, f"fewer than {NEW_WORDS:,} new words, too few to judge its fit", {})
    compared = (
        f"{now['pieces_per_word']:.3f} pieces per word and {now['unknown_rate']:.2%} unknown on {words:,} new "
        f"words; {before['pieces_per_word']:.3f} and {before['unknown_rate']:.2%} where it was learned"
    )
    limits = {
        "pieces_per_word": MOST_PIECES * before["pieces_per_word"],
        "unknown_rate": MOST_UNKNOWN + before["unknown_rate"],
    }
    exceeded = next((name for name, limit in limits.items() if now[name] > limit), None)
    reason = compared if exceeded is None else f"{exceeded} has grown too much: {compared}"
    return Decision(exceeded is not None, reason, now | {"words": words})
