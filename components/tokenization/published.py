"""Import of published tokenizers: the same segmentation of every text, with the special pieces first.

The first of these files is read: tokenizer.json (format of the `tokenizers` library), vocab.txt (WordPiece), vocab.json
with merges.txt (BPE: GPT's if a piece ends with `WORD_END`, else byte-level). tokenizer_config.json and
special_tokens_map.json name the special pieces.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from components.core.artifacts import digest_files, json_of
from components.core.errors import ArtifactError
from components.data.segmenters import Segmentation
from components.settings.hub import hub_folder, is_hub_name
from components.tokenization import Tokenizer
from components.tokenization.bert import BertWords
from components.tokenization.bpe import WORD_END, BytePairTokenizer, WordPairTokenizer, pre_tokenizer
from components.tokenization.special import FIRST_ORDINARY, SPECIAL_PIECES
from components.tokenization.unigram import WORDS, UnigramTokenizer
from components.tokenization.wordpiece import LONGEST_WORD, WordPieceTokenizer

#: (special piece, keys of the published settings that name its counterpart, usual names in order of preference). A
#: published piece is used once, for the first match: GPT-2's only special piece becomes [SEP], as does GPT's line feed,
#: which separates passages in its training text and which BERT's words never contain.
NAMES: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("[SEP]", ("sep_token", "eos_token"), ("[SEP]", "<sep>", "</s>", "<|endoftext|>", f"\n{WORD_END}")),
    ("[CLS]", ("cls_token",), ("[CLS]", "<cls>", "<s>")),
    ("[MASK]", ("mask_token",), ("[MASK]", "<mask>")),
    ("[PAD]", ("pad_token",), ("[PAD]", "<pad>")),
    ("[UNK]", ("unk_token",), ("[UNK]", "<unk>")),
)
#: The pre-tokenizer that separates digits, in the notation of the library.
DIGITS: Final = {"type": "Digits", "individual_digits": True}
#: Files that belong to the digest of a published tokenizer; spiece.model only beside tokenizer.json.
FILES: Final = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer_config.json",
    "special_tokens_map.json",
)  # fmt: skip
#: Sentence-transformers: `do_lower_case` lower-cases texts before the tokenizer; named after the model in old folders.
READING: Final = "sentence_*_config.json"


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of an imported tokenizer.

    Attributes:
        rows: id -> published id; -1 for a special piece without a counterpart.
        named: special piece -> name of its published counterpart, for the log.
    """

    tokenizer: Tokenizer
    rows: list[int]
    named: dict[str, str]
    size: int


def reading_config(folder: Path) -> Path:
    """The file of sentence-transformers beside a tokenizer, which need not exist."""
    return next(iter(sorted(folder.glob(READING))), folder / "sentence_bert_config.json")


def read_vocabulary(folder: Path) -> Vocabulary:
    """Import the tokenizer of a Hugging Face folder.

    Raises:
        ArtifactError: there is no tokenizer, it is damaged, or its rules are not supported.
    """
    settings = json_object(folder / "special_tokens_map.json") | json_object(folder / "tokenizer_config.json")
    settings["lower"] = bool(json_object(reading_config(folder)).get("do_lower_case"))
    if (folder / "tokenizer.json").is_file():
        return _from_library(folder / "tokenizer.json", settings)
    if (folder / "vocab.txt").is_file():
        words = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        lowercase = settings.get("do_lower_case", True)
        rules = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
            "lowercase": lowercase,
        }
        return _word_pieces(folder / "vocab.txt", _numbered(words, folder / "vocab.txt"), rules, settings)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        if settings.get("add_prefix_space"):
            raise ArtifactError(f"{folder}: add_prefix_space is not supported")
        vocabulary = json_object(folder / "vocab.json")
        bert = BertWords(segmentation=Segmentation("none"), lowercase=True, strip_accents=True)
        split = bert if any(piece.endswith(WORD_END) for piece in vocabulary) else None
        return _pairs(folder / "vocab.json", vocabulary, merges, settings, words=split)
    hint = ""
    if alone := next((path.name for path in sorted(folder.glob("*.model"))), None):
        hint = f"; {alone} alone is not read: save the model's tokenizer.json with transformers"
    raise ArtifactError(
        f"{folder}: no tokenizer found; expected tokenizer.json, vocab.txt, or vocab.json with merges.txt{hint}"
    )


def vocabulary_digest(folder: Path) -> str:
    return digest_files([*(folder / name for name in FILES), reading_config(folder)])


def published_tokenizer(folder: Path, *, kind: str, digest: str | None) -> Tokenizer:
    """Import the tokenizer of a folder as `read_vocabulary`. Raises ArtifactError also: other kind or digest."""
    folder = hub_folder(folder) if is_hub_name(folder) else folder
    tokenizer = read_vocabulary(folder).tokenizer
    if tokenizer.kind != kind:
        raise ArtifactError(f"{folder}: its tokenizer is of kind {tokenizer.kind!r}, not {kind!r}")
    if digest is not None and (content := vocabulary_digest(folder)) != digest:
        raise ArtifactError(f"{folder}: the digest of its tokenizer is {content}, expected {digest}")
    return tokenizer


def _from_library(path: Path, settings: Mapping[str, Any]) -> Vocabulary:
    content = json_object(path)
    try:
        model, normalizer, cutter = content["model"], content["normalizer"], content["pre_tokenizer"]
        kind, entries = model.get("type", "BPE" if "merges" in model else "WordPiece"), model["vocab"]
        if kind == "Unigram":
            pieces = [(str(piece), float(score)) for piece, score in entries]
            if model.get("byte_fallback") or cutter is None:
                raise ArtifactError(f"{path}: unigram vocabularies with byte fallback are not supported")
            added = sorted(content.get("added_tokens", []), key=lambda entry: entry["id"])
            controls = {entry["content"] for entry in added if entry.get("special")}
            pieces += [(entry["content"], 0.0) for entry in added if entry["id"] >= len(entries)]
            return _unigram(path, pieces, controls, normalizer, cutter, settings)
        vocabulary: dict[str, int] = dict(entries)
        for added in content.get("added_tokens", []):
            vocabulary.setdefault(added["content"], added["id"])
        if kind == "WordPiece":
            if (prefix := model.get("continuing_subword_prefix", "##")) != "##":
                raise ArtifactError(f"{path}: the continuation prefix is {prefix!r}; only '##' is supported")
            if model.get("max_input_chars_per_word", LONGEST_WORD) != LONGEST_WORD:
                raise ArtifactError(f"{path}: max_input_chars_per_word must be {LONGEST_WORD}")
            if (cutter or {}).get("type") != "BertPreTokenizer":
                raise ArtifactError(f"{path}: WordPiece without BERT's pre-tokenizer is not supported")
            return _word_pieces(path, vocabulary, normalizer or {}, settings)
        if kind == "BPE":
            merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
            if model.get("end_of_word_suffix") == WORD_END and (cutter or {}).get("type") == "BertPreTokenizer":
                words = _bert_words(path, normalizer or {})
                return _pairs(path, vocabulary, merges, settings, words=words)
            parts = (cutter or {}).get("pretokenizers", [])
            if digits := parts[:1] == [DIGITS]:
                cutter = {"pretokenizers": parts[1:]}
            marks = _marks(cutter)
            added = content.get("added_tokens", [])
            ordinary = [entry for entry in added if not entry.get("special")]
            if normalizer not in (None, {"type": "NFC"}) or marks is None or not all(map(_is_plain, ordinary)):
                raise ArtifactError(
                    f"{path}: only byte-level BPE with GPT-2's pre-tokenizer is supported, without another normaliser "
                    f"than NFC, add_prefix_space and stripping pieces, and BPE with {WORD_END} over BERT's words"
                )
            published: dict[str, Any] = {
                "added": [entry["content"] for entry in ordinary],
                "composed": normalizer is not None,
                "digits": digits,
            }
            return _pairs(path, vocabulary, merges, settings, marks=marks, **published)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path}: damaged ({error!r}); fetch it again") from error
    raise ArtifactError(f"{path}: vocabulary of type {kind!r}; WordPiece, BPE and Unigram are supported")


def _is_plain(added: Mapping[str, Any]) -> bool:
    """Whether an added piece is cut out of a text wherever it occurs, and is a run of spaces or has none."""
    text = added["content"]
    strips = any(added.get(flag) for flag in ("single_word", "lstrip", "rstrip"))
    return not strips and (not text.strip(" ") or not re.search(r"\s", text))


def _marks(cutter: Mapping[str, Any] | None) -> bool | None:
    """The value of `BytePairTokenizer.marks` that is equivalent to a pre-tokenizer; None: it is not supported."""
    parts = (cutter or {}).get("pretokenizers", [cutter])
    if parts[-1] is None or parts[-1].get("type") != "ByteLevel" or parts[-1].get("add_prefix_space", True):
        return None
    if len(parts) == 1:
        return False if parts[0].get("use_regex", True) else None
    for marks in (False, True):
        ours = json.loads(pre_tokenizer(marks=marks, segmentation=Segmentation("none")).__getstate__())
        if parts == ours["pretokenizers"]:
            return marks
    return None


def _word_pieces(
    path: Path, vocabulary: Mapping[str, int], rules: Mapping[str, Any], settings: Mapping[str, Any]
) -> Vocabulary:
    order, named = _order(path, list(vocabulary), vocabulary, settings)
    words = _bert_words(path, rules)
    words["lowercase"] |= settings["lower"]
    tokenizer = WordPieceTokenizer(_pieces(order, vocabulary), **words)
    return Vocabulary(tokenizer, order, named, len(vocabulary))


def _bert_words(path: Path, rules: Mapping[str, Any]) -> BertWords:
    """The arguments of a tokenizer of BERT's words for a normaliser in the notation of the library."""
    parts = rules.get("normalizers", [])
    if [part.get("type") for part in parts] == ["Lowercase", "BertNormalizer"]:
        # As sentence-transformers writes `do_lower_case`.
        return {**_bert_words(path, parts[1]), "lowercase": True}
    if rules.get("type") != "BertNormalizer" or not (rules["clean_text"] and rules["handle_chinese_chars"]):
        raise ArtifactError(f"{path}: words without BERT's normaliser are not supported")
    lowercase, strip = bool(rules["lowercase"]), rules.get("strip_accents")
    return {
        "segmentation": Segmentation("none"),
        "lowercase": lowercase,
        "strip_accents": lowercase if strip is None else bool(strip),
    }


def _pairs(
    path: Path,
    vocabulary: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    settings: Mapping[str, Any],
    *,
    words: BertWords | None = None,
    **published: Any,
) -> Vocabulary:
    """BPE over the characters of `words`; byte-level BPE, with arguments of its class, if that is None."""
    if settings["lower"] and not (words and words["lowercase"]):
        raise ArtifactError(f"{path}: do_lower_case with a BPE tokenizer is not supported; choose another encoder")
    order, named = _order(path, list(vocabulary), vocabulary, settings)
    pieces = _pieces(order, vocabulary)
    tokenizer: Tokenizer
    try:
        if words is None:
            published["added"] = [piece for piece in published.get("added", ()) if piece in pieces[FIRST_ORDINARY:]]
            tokenizer = BytePairTokenizer(
                pieces, merges=merges, segmentation=Segmentation("none"), **({"marks": False} | published)
            )
        else:
            tokenizer = WordPairTokenizer(pieces, merges=merges, **words)
    except ValueError as error:
        raise ArtifactError(f"{path}: {error}") from error
    return Vocabulary(tokenizer, order, named, len(vocabulary))


def _unigram(
    path: Path,
    pieces: Sequence[tuple[str, float]],
    controls: set[str],
    normalizer: Mapping[str, Any] | None,
    cutter: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Vocabulary:
    vocabulary = _numbered([piece for piece, _ in pieces], path)
    if settings["lower"]:
        rules = [{"type": "Lowercase"}, *([normalizer] if normalizer else [])]
        normalizer = {"type": "Sequence", "normalizers": rules}
    order, named = _order(path, list(vocabulary), vocabulary, settings)
    names = _pieces(order, vocabulary)
    # A piece with a space in its name cannot occur in text.
    names[FIRST_ORDINARY:] = [f" {name}" if name in controls else name for name in names[FIRST_ORDINARY:]]
    tokenizer = UnigramTokenizer(
        names,
        scores=[pieces[row][1] if row >= 0 else 0.0 for row in order],
        segmentation=Segmentation("none"),
        normalizer=normalizer,
        pre_tokenizer=WORDS if _cuts_like_ours(cutter) else cutter,
    )
    return Vocabulary(tokenizer, order, named, len(vocabulary))


def _cuts_like_ours(cutter: Mapping[str, Any]) -> bool:
    """Whether a pre-tokenizer is equivalent to `WORDS`, in the notation of any version of the library."""
    parts = cutter.get("pretokenizers", [])
    if [part.get("type") for part in parts] != ["WhitespaceSplit", "Metaspace"]:
        return False
    mark = parts[1]
    always = mark.get("prepend_scheme", "always" if mark.get("add_prefix_space", True) else "never") == "always"
    return always and bool(mark.get("split", True)) and mark.get("replacement") == "\u2581"


def _order(
    path: Path, names: Sequence[str], vocabulary: Mapping[str, int], settings: Mapping[str, Any]
) -> tuple[list[int], dict[str, str]]:
    """id -> published id (special pieces first, the others in published order), and special piece -> published name."""
    ids = sorted(vocabulary.values())
    if ids != list(range(len(ids))):
        raise ArtifactError(f"{path}: ids must be 0..{len(ids) - 1}, each once")
    named: dict[str, str] = {}
    for ours, keys, usual in NAMES:
        given = [_content(settings.get(key)) for key in keys]
        counterpart = next(
            (name for name in [*given, *usual] if name in vocabulary and name not in named.values()), None
        )
        if counterpart is not None:
            named[ours] = counterpart
    taken = {vocabulary[name] for name in named.values()}
    special = [vocabulary[named[ours]] if ours in named else -1 for ours in SPECIAL_PIECES]
    return [*special, *(id_ for id_ in ids if id_ not in taken)], named


def _pieces(order: Sequence[int], vocabulary: Mapping[str, int]) -> list[str]:
    name = {id_: piece for piece, id_ in vocabulary.items()}
    ordinary = [name[id_] for id_ in order[FIRST_ORDINARY:]]
    # An ordinary published piece may have the name of a special piece.
    return [*SPECIAL_PIECES, *(f" {piece}" if piece in SPECIAL_PIECES else piece for piece in ordinary)]


def _content(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")


def _numbered(pieces: Sequence[str], path: Path) -> dict[str, int]:
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        twice = next(piece for index, piece in enumerate(pieces) if vocabulary[piece] != index)
        raise ArtifactError(f"{path}: {twice!r} occurs twice")
    return vocabulary


def json_content(path: Path) -> Any:
    try:
        return json_of(path)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: does not exist") from error
    except ValueError as error:
        raise ArtifactError(f"{path}: not readable as JSON ({error})") from error


def json_object(path: Path) -> dict[str, Any]:
    content = json_content(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise ArtifactError(f"{path}: expected an object")
    return content
