"""Base class of tokenizers, their storage, and the mapping between two vocabularies."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import json_of, write_atomic
from components.core.errors import ArtifactError
from components.core.tables import LazyTable
from components.data.segmenters import Segmentation
from components.tokenization.special import FIRST_ORDINARY, SPECIAL_PIECES

CONFIG: Final = "config.json"
FREQUENCIES: Final = "frequencies.npy"

#: Kind -> tokenizer class. The first use of a kind imports its module and libraries.
KINDS: Final[LazyTable[type[Tokenizer]]] = LazyTable(
    {
        "wordpiece": "components.tokenization.wordpiece:WordPieceTokenizer",
        "word": "components.tokenization.word:WordTokenizer",
        "bpe": "components.tokenization.bpe:BytePairTokenizer",
        "unigram": "components.tokenization.unigram:UnigramTokenizer",
        "char": "components.tokenization.char:CharTokenizer",
        "open_word": "components.tokenization.word:OpenWordTokenizer",
    }
)

#: Texts whose ids are part of the fingerprint. An edit invalidates every stored tokenizer.
PROBES: Final = (
    "The quick brown fox jumps over the lazy dog.",
    "Naïve café, Ångström - ÉCLAIR; straße İstanbul ﬁne",
    "การประมวลผลภาษาธรรมชาติ 2563 ๑๒๓ ก็ได้",
    "👩‍👩‍👧 family, 🇹🇭 flag, ❤️ and e\u0301",
    'def f(x: int) -> str:\n\treturn f"{x!r}"  # 0x1F + 3.14e-10',
    "2026-11-21T03:10:00Z 1,234,567.89 +66-2-123-4567",
    "中文分词 日本語テキスト 한국어 Привет العربية",
    "[MASK] [UNK] ##ing a\u200bb\u00a0c\x00d\ufffde " + "x" * 120,
)

Ids = NDArray[np.int32]

_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer(ABC):
    """A vocabulary of V pieces, and the rule that splits text into them.

    Ids are indices into `pieces`; the first five are the special pieces of `components.tokenization.special`. Text is
    never encoded to a special id other than UNK: "[MASK]" in a document is ordinary text. `frequencies`: (V,) int64
    counts of the ids in the training sample, END once per document; None without a sample."""

    kind: ClassVar[str]
    #: Whether the ids depend on the segmentation; otherwise it is only used to count words.
    segmented: ClassVar[bool] = True
    #: What segmentation inserts between two adjacent words.
    separator: ClassVar[str] = " "
    #: Whether white space is part of the following word, so that a text may be split before white space only.
    leads_with_space: ClassVar[bool] = False
    #: The white space at the end of the prompt of `after_prompt`, where it is part of the first piece of a text.
    lead: str = ""

    def __init__(
        self, pieces: Sequence[str], *, segmentation: Segmentation, frequencies: NDArray[np.int64] | None = None
    ) -> None:
        if tuple(pieces[:FIRST_ORDINARY]) != SPECIAL_PIECES:
            raise ArtifactError(f"a vocabulary must begin with {', '.join(SPECIAL_PIECES)}; found {list(pieces[:5])}")
        self.pieces = list(pieces)
        self.segmentation = segmentation
        self.frequencies = frequencies

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def spelling(self, id_: int) -> str:
        return self.pieces[id_]

    @abstractmethod
    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        """Ids (N,) int32 of all texts, without special pieces and segmentation, and offsets (len(texts) + 1,) int64;
        text i is `ids[offsets[i]:offsets[i + 1]]`."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without START, END and PAD. Each class documents what a round trip preserves."""

    def continues(self, id_: int) -> bool:
        """Whether a piece continues the previous word."""
        return False

    def surface(self, id_: int) -> str:
        """The text of an ordinary piece, without markers and surrounding spaces."""
        return self.pieces[id_]

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Keyword arguments of the class that are stored in config.json."""

    @abstractmethod
    def _write_vocabulary(self, directory: Path) -> None:
        """Write the vocabulary file."""

    @classmethod
    @abstractmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        """Read the pieces from the vocabulary file."""

    @classmethod
    def _class_for(cls, settings: dict[str, Any]) -> type[Tokenizer]:
        # The class of this kind that has these keyword arguments.
        return cls

    @classmethod
    def _read_rules(cls, directory: Path) -> dict[str, Any]:
        # Subclasses read their keyword arguments from the vocabulary file (merges, scores).
        return {}

    def _rules(self) -> Any:
        # The values that `_read_rules` reads, for the fingerprint.
        return None

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, int32, without special pieces; views of one array."""
        ids, offsets = self.encode_ragged([self.segmentation.spaced(text, self.separator) for text in texts])
        return [ids[start:end] for start, end in pairwise(offsets.tolist())]

    def after_prompt(self, prompt: str) -> list[int]:
        """The ids of a prompt, which stands before the texts of `encode_texts` from now on."""
        return self.encode_batch([prompt.rstrip()])[0].tolist()

    def encode_texts(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text as `encode_batch`, after the prompt, whose ids are not among them."""
        return self.encode_batch([self.lead + text for text in texts] if self.lead else texts)

    @abstractmethod
    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        """The ids of `encode_batch([text])`, and for each piece its (start, end) in the characters of `text`."""

    def log_frequencies(self) -> NDArray[np.float32]:
        """Log unigram probabilities (V,) with add-one smoothing, the initial output bias of language models.

        Raises:
            ArtifactError: the tokenizer has no frequencies.
        """
        if self.frequencies is None:
            raise ArtifactError("the tokenizer has no frequencies of its pieces; run the tokenizer stage again")
        raised = self.frequencies.astype(np.float64) + 1
        return np.log(raised / raised.sum()).astype(np.float32)

    def fingerprint(self) -> str:
        """SHA-256 over the kind, the pieces, the rules (merges, scores) and the ids of the texts in `PROBES`, so that
        it changes with settings or library behaviour that change them."""
        digest = hashlib.sha256(self.kind.encode())
        digest.update(json.dumps(self.pieces).encode())
        if (rules := self._rules()) is not None:
            digest.update(json.dumps(rules, sort_keys=True).encode())
        for probed in self._probed():
            digest.update(probed + b"|")
        return digest.hexdigest()

    def _probed(self) -> Iterator[bytes]:
        for ids in self.encode_batch(PROBES):
            yield np.asarray(ids, dtype="<i4").tobytes()

    def save(self, directory: Path) -> None:
        """Write config.json, the vocabulary file and, if there are frequencies, frequencies.npy to `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        self._write_vocabulary(directory)
        if self.frequencies is not None:
            np.save(directory / FREQUENCIES, self.frequencies, allow_pickle=False)
        config = {
            "kind": self.kind,
            "settings": self._settings() | {"segmenter": self.segmentation.name},
            "vocabulary": self.vocab_size,
            "fingerprint": self.fingerprint(),
            "frequencies": FREQUENCIES if self.frequencies is not None else None,
        }
        write_atomic(directory / CONFIG, json.dumps(config, indent=1, sort_keys=True) + "\n")


def load_tokenizer(directory: Path) -> Tokenizer:
    """Read a saved tokenizer, and verify by its fingerprint that it gives the same ids as when it was saved.

    Raises:
        ArtifactError: a file is missing or damaged, the kind is unknown, or the fingerprint differs.
    """
    directory = Path(directory)
    try:
        config = json_of(directory / CONFIG)
        kind, settings, stored = config["kind"], dict(config["settings"]), config["fingerprint"]
        if kind not in KINDS:
            raise ArtifactError(f"{directory / CONFIG}: unknown kind of tokenizer {kind!r}; known: {', '.join(KINDS)}")
        cls = KINDS[kind]._class_for(settings)
        frequencies = None
        if config["frequencies"]:
            frequencies = np.load(directory / config["frequencies"], allow_pickle=False)
        segmentation = Segmentation(settings.pop("segmenter"))
        settings.pop("fast", None)  # of an earlier version, in which a second library gave the same ids
        settings |= cls._read_rules(directory)
        tokenizer = cls(cls._read_vocabulary(directory), segmentation=segmentation, frequencies=frequencies, **settings)
    except FileNotFoundError as error:
        raise ArtifactError(f"{error.filename}: does not exist; {directory} is not a tokenizer directory") from error
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise ArtifactError(f"{directory}: damaged tokenizer ({error!r}); run the tokenizer stage again") from error
    if frequencies is not None and frequencies.shape != (tokenizer.vocab_size,):
        raise ArtifactError(
            f"{directory / FREQUENCIES}: {frequencies.shape} counts for {tokenizer.vocab_size} pieces; "
            "run the tokenizer stage again"
        )
    if tokenizer.fingerprint() != stored:
        raise ArtifactError(
            f"{directory}: this tokenizer no longer gives the ids that it gave when it was saved: its files or the "
            "tokenizers or pythainlp library have changed; restore it, install the locked versions, or run the stage "
            "tokenizer and all later stages again"
        )
    return tokenizer


def overlap(old: Sequence[str], new: Sequence[str]) -> NDArray[np.int64]:
    """The old id of each piece of a new vocabulary, or -1: (len(new),) int64, for `LanguageModel.remap_vocabulary`."""
    ids = {piece: index for index, piece in enumerate(old)}
    return np.fromiter((ids.get(piece, -1) for piece in new), dtype=np.int64, count=len(new))


def well_formed(text: str) -> str:
    """`text` with every lone surrogate, which cannot be encoded as UTF-8, replaced by U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)
