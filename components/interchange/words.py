"""Import of models with word vocabularies: fastai's AWD-LSTM, and word vectors.

Published vocabularies use other tokenization rules (spaCy, Stanford ...). Text is split like BERT's; entries that this
splitting does not produce ("don't", "new_york") keep their rows but are never used. The log has their number.

A file of fastai has a language model (`learn.save`) or an encoder only (`learn.save_encoder`); its vocabulary is a list
of words as .json. The order of the gates is the same; the two biases of a gate are added. xxpad, xxunk and xxbos become
[PAD], [UNK] and [SEP], which precedes a document; the other markers (xxmaj, xxup ...) are ordinary words. [CLS] and
[MASK] have no counterpart: their embeddings are zero and their bias is `NEVER`, so that their probability vanishes.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from components.core.errors import ArtifactError
from components.data.segmenters import SEGMENTERS, Segmentation
from components.interchange.huggingface.rules import lstm, normalised, plain, restored
from components.interchange.published import (
    NEVER,
    Imported,
    check_family,
    chosen_rows,
    errors_of,
    plain_tensors,
    texts_in,
)
from components.interchange.vectors import UNKNOWN, FastTextVectors, read_vectors
from components.models.ulmfit import FAMILY, AWDLSTMConfig
from components.tokenization.bert import backend
from components.tokenization.published import json_content
from components.tokenization.special import END, FIRST_ORDINARY, PAD, SPECIAL_PIECES, UNK
from components.tokenization.word import OpenWordTokenizer, WordTokenizer

#: Marker of fastai -> id of the special piece.
MARKS: Final = {"xxpad": PAD, "xxunk": UNK, "xxbos": END}
#: Dropout rates and penalties, which a weight file lacks: those with which fastai trains and fine-tunes its weights.
REGULARISATION: Final = {
    key: value for key, value in FAMILY.presets["awd-lstm-1152"].items() if key in AWDLSTMConfig.of_training()
}
#: Word with which fastai pads the vocabulary to a multiple of 8; the only one that may occur more than once.
FILLER: Final = "xxfake"
#: Copies of the embedding under other names.
_COPIES: Final = ("encoder_dp.emb.weight", "encoder_with_dropout.embed.weight", "decoder.weight")
_RULES: Final = (
    plain("embedding", "encoder.weight"),
    plain("bias", "decoder.bias", part="predictions"),
    *lstm("lstms.{layer}", "rnns.{layer}.{}_l0"),
)


@dataclass(frozen=True)
class FastaiModel:
    settings: dict[str, Any]
    pieces: list[str]
    tensors: dict[str, Tensor]
    fresh: list[str]


def from_fastai(state: Mapping[str, Tensor], vocabulary: Sequence[str]) -> FastaiModel:
    """Convert fastai's tensors and words. Dropout rates and penalties are `REGULARISATION`.

    Raises:
        ArtifactError: tensors are missing, surplus or misshapen; the softmax is not tied to the embedding; the
            vocabulary has another size or a word twice.
    """
    # The encoder of a language model is the first part of a sequence, the decoder the second. The raw weights replace
    # the weights after DropConnect.
    given = {
        re.sub(r"^[01]\.|\bmodule\.|_raw$", "", name): state[name]
        for name in sorted(state, key=lambda name: name.endswith("_raw"))
    }
    try:
        given = normalised(given, prefix="", copies=dict.fromkeys(_COPIES, "encoder.weight"))
        table = given.get("encoder.weight")
        if table is None or table.ndim != 2 or "rnns.0.weight_hh_l0" not in given:
            raise ArtifactError("there is no tensor 0.encoder.weight, or no LSTM")
        sizes = {
            "vocabulary": len(table),
            "embedding": table.shape[1],
            "hidden": given["rnns.0.weight_hh_l0"].shape[-1],
            "layers": sum("weight_hh" in name for name in given)
        }  # fmt: skip
        settings, size, tensors, fresh = restored("ulmfit", REGULARISATION | sizes, _RULES, given, file="each other")
    except ArtifactError as error:
        raise ArtifactError(f"not an AWD-LSTM of fastai: {error}") from error
    pieces, rows = _our_pieces(vocabulary, size)
    for name, missing in (("embedding", 0.0), ("bias", NEVER)):
        tensors[name] = chosen_rows(tensors[name], torch.tensor(rows), missing)
    return FastaiModel(settings, pieces, tensors, fresh)


def read_fastai(weights: Path, vocabulary: Path) -> FastaiModel:
    """Read and convert a weight file and its vocabulary; only plain tensors are unpickled.

    Raises:
        ArtifactError: a file is missing, damaged or has other content, or the files do not match.
    """
    if vocabulary.suffix != ".json":
        raise ArtifactError(
            f"{vocabulary}: a vocabulary is read from .json only, because a pickle can execute code; write the list of "
            "words with json.dump where the file was created"
        )
    words = json_content(vocabulary)
    state = plain_tensors(weights, remedy="save it with learn.save(..., with_opt=False)")
    words = texts_in(words, f"{vocabulary}: expected a list of words")
    with errors_of(weights):
        return from_fastai(state, words)


def _our_pieces(vocabulary: Sequence[str], rows: int) -> tuple[list[str], list[int]]:
    """The vocabulary with special pieces, and the row of each piece in fastai's embedding, -1 if there is none."""
    if len(vocabulary) != rows:
        raise ArtifactError(f"{len(vocabulary)} words in the vocabulary for {rows} rows of the embedding")
    words = list(vocabulary)
    for index in range(1, len(words)):
        if words[index] == FILLER and FILLER in words[:index]:
            words[index] = f"{FILLER}{index}"
    counts = Counter([*words, *SPECIAL_PIECES])
    if twice := [word for word, count in counts.items() if count > 1]:
        raise ArtifactError(f"{twice[0]!r} occurs in the vocabulary twice, or is the name of a special piece")
    row = {word: index for index, word in enumerate(words)}
    special = [-1] * FIRST_ORDINARY
    for mark, id_ in MARKS.items():
        special[id_] = row.get(mark, -1)
    ordinary = [word for word in words if word not in MARKS]
    return [*SPECIAL_PIECES, *ordinary], [*special, *(row[word] for word in ordinary)]


#: Names of the document end in files of vectors.
ENDS: Final = ("</s>", "[SEP]")
#: Number of words that are checked against the splitting of text.
REACHED: Final = 20_000


def from_fastai_file(weights: Path, vocabulary: Path, *, family: str | None, digest: str) -> Imported:
    check_family(family, weights, "ulmfit")
    read = read_fastai(weights, vocabulary)
    tokenizer = word_tokenizer(read.pieces)
    log = [f"{weights}: fastai's AWD-LSTM -> family 'ulmfit', {read.settings}", *words_log(tokenizer)]
    return Imported.of("ulmfit", read.settings, read.tensors, tokenizer, digest, log, read.fresh)


def from_vectors(path: Path, *, family: str | None, digest: str) -> Imported:
    """Import word vectors as the input embeddings of a word2vec model, or a file of fastText with n-grams as a fastText
    model; the output embeddings are zero.

    Raises:
        DataError: the file is damaged.
        ConfigError: another family is requested.
    """
    read = read_vectors(path)
    families = ("fasttext", "word2vec") if isinstance(read, FastTextVectors) else ("word2vec",)
    family = family or families[0]
    check_family(family, path, *families)
    open_words = isinstance(read, FastTextVectors) and family == "fasttext"
    vectors = torch.from_numpy(read.vectors if open_words else read.take(np.arange(len(read.words))))
    row_of = {word: row for row, word in enumerate(read.words)}
    special = torch.zeros(FIRST_ORDINARY, vectors.shape[1])
    named = {
        ours: next((name for name in names if name in row_of), None) for ours, names in ((UNK, UNKNOWN), (END, ENDS))
    }
    special[UNK] = vectors.mean(0)
    for ours, name in named.items():
        if name is not None:
            special[ours] = vectors[row_of[name]]
    ordinary = [word for word in read.words if word not in SPECIAL_PIECES and word not in named.values()]
    tokenizer = word_tokenizer([*SPECIAL_PIECES, *ordinary], kind=OpenWordTokenizer if open_words else WordTokenizer)
    table = torch.cat([special, vectors[[row_of[word] for word in ordinary]]])
    tensors, settings = {"input": table, "output": torch.zeros_like(table)}, {"width": vectors.shape[1]}
    if isinstance(read, FastTextVectors) and open_words:
        tensors = {"word": table, "gram": torch.from_numpy(np.array(read.grams)), "output": torch.zeros_like(table)}
        settings = read.config.model_dump(exclude={"vocabulary"})
    unknown = f"{named[UNK]!r}" if named[UNK] else "the mean of all vectors"
    log = [
        f"{path}: {len(read.words)} vectors of {vectors.shape[1]} numbers -> family {family!r}",
        *(["words beyond these are composed of their n-grams"] if open_words else []),
        f"[UNK] (id {UNK}): {unknown}",
        *words_log(tokenizer),
    ]
    return Imported.of(family, settings, tensors, tokenizer, digest, log)


def word_tokenizer(pieces: Sequence[str], *, kind: type[WordTokenizer] = WordTokenizer) -> WordTokenizer:
    """A tokenizer of a word list: lower-cased if all words are, and without accents if no word has any."""
    words = pieces[FIRST_ORDINARY:]
    lowercase = not any(word != word.lower() for word in words)
    accents = any(
        unicodedata.category(character) == "Mn" for word in words for character in unicodedata.normalize("NFD", word)
    )
    scripts = any(segmenter.script.search(word) for word in words for segmenter in SEGMENTERS.values())
    return kind(
        pieces,
        segmentation=Segmentation("auto" if scripts else "none"),
        lowercase=lowercase,
        strip_accents=lowercase and not accents,
    )


def words_log(tokenizer: WordTokenizer) -> list[str]:
    """Lines about an imported vocabulary: how it splits text, and how many words it can produce."""
    cutter = backend(tokenizer.backend.model, lowercase=tokenizer.lowercase, strip_accents=tokenizer.strip_accents)
    words = tokenizer.pieces[FIRST_ORDINARY : FIRST_ORDINARY + REACHED]
    reached = sum(
        [part for part, _ in cutter.pre_tokenizer.pre_tokenize_str(cutter.normalizer.normalize_str(word))] == [word]
        for word in words
    )
    return [
        f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size} pieces, "
        f"{'lower case' if tokenizer.lowercase else 'cased'}{'' if tokenizer.strip_accents else ', accents kept'}, "
        f"segmenter {tokenizer.segmentation.name}",
        f"{reached} of the first {len(words)} words can occur in tokenized text; the others are never used",
    ]
