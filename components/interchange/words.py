"""Import of models with word vocabularies: fastai's AWD-LSTM, and word vectors as text.

Published vocabularies use other tokenization rules (spaCy, Stanford ...). Text is split like BERT's; entries that this
splitting does not produce ("don't", "new_york") keep their rows but are never used. The log has their number.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from components.interchange.fastai import read_fastai
from components.interchange.published import Imported, unfit
from components.interchange.vectors_text import UNKNOWN, read_vectors
from components.models.encoder import build_model
from components.tokenization.bert import backend
from components.tokenization.segmenters import SEGMENTERS, Segmentation
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES, UNK
from components.tokenization.word import WordTokenizer

#: Names of the document end in files of vectors.
ENDS: Final = ("</s>", "[SEP]")
#: Number of words that are checked against the splitting of text.
REACHED: Final = 20_000


def from_fastai_file(weights: Path, vocabulary: Path, *, family: str | None, digest: str) -> Imported:
    """Import fastai's weights and vocabulary as a ULMFiT model.

    Raises:
        ArtifactError: a file is missing or damaged, or the files do not match.
        ConfigError: another family is requested.
    """
    if family not in (None, "ulmfit"):
        raise unfit(str(family), weights, ("ulmfit",))
    read = read_fastai(weights, vocabulary)
    tokenizer = word_tokenizer(read.pieces)
    model = build_model("ulmfit", vocabulary=len(read.pieces), settings=read.settings, tokenizer=tokenizer.kind)
    model.load_state_dict(read.tensors)
    model.bind(tokenizer)
    log = [f"{weights}: fastai's AWD-LSTM -> family 'ulmfit', {read.settings}", *_words_log(tokenizer)]
    return Imported("ulmfit", model.eval(), tokenizer, digest, log)


def from_vectors(path: Path, *, family: str | None, digest: str) -> Imported:
    """Import word vectors as the input embeddings of a word2vec model; the output embeddings are zero.

    Raises:
        DataError: the file is damaged.
        ConfigError: another family is requested.
    """
    if family not in (None, "word2vec"):
        raise unfit(str(family), path, ("word2vec",))
    read = read_vectors(path)
    vectors = torch.from_numpy(read.vectors)
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
    tokenizer = word_tokenizer([*SPECIAL_PIECES, *ordinary])
    model = build_model(
        "word2vec",
        vocabulary=tokenizer.vocab_size,
        settings={"width": vectors.shape[1]},
        tokenizer=tokenizer.kind,
    )
    table = torch.cat([special, vectors[[row_of[word] for word in ordinary]]])
    model.load_state_dict({"input": table, "output": torch.zeros_like(table)})
    model.bind(tokenizer)
    unknown = f"{named[UNK]!r}" if named[UNK] else "the mean of all vectors"
    log = [
        f"{path}: {len(read.words)} vectors of {vectors.shape[1]} numbers -> family 'word2vec'",
        f"[UNK] (id {UNK}): {unknown}",
        *_words_log(tokenizer),
    ]
    return Imported("word2vec", model.eval(), tokenizer, digest, log)


def word_tokenizer(pieces: Sequence[str]) -> WordTokenizer:
    """A tokenizer of a word list: lower-cased if all words are, and without accents if no word has any."""
    words = pieces[FIRST_ORDINARY:]
    lowercase = not any(word != word.lower() for word in words)
    accents = any(
        unicodedata.category(character) == "Mn" for word in words for character in unicodedata.normalize("NFD", word)
    )
    scripts = any(segmenter.script.search(word) for word in words for segmenter in SEGMENTERS.values())
    return WordTokenizer(
        pieces,
        segmentation=Segmentation("auto" if scripts else "none"),
        lowercase=lowercase,
        strip_accents=lowercase and not accents,
    )


def _words_log(tokenizer: WordTokenizer) -> list[str]:
    cutter = backend(tokenizer.backend.model, lowercase=tokenizer.lowercase, strip_accents=tokenizer.strip_accents)
    words = tokenizer.pieces[FIRST_ORDINARY : FIRST_ORDINARY + REACHED]
    reached = sum(
        [part for part, _ in cutter.pre_tokenizer.pre_tokenize_str(cutter.normalizer.normalize_str(word))] == [word]
        for word in words
    )
    return [
        f"tokenizer: word, {tokenizer.vocab_size} pieces, {'lower case' if tokenizer.lowercase else 'cased'}"
        f"{', accents kept' if not tokenizer.strip_accents else ''}, segmenter {tokenizer.segmentation.name}",
        f"{reached} of the first {len(words)} words can occur in tokenized text; the others are never used",
    ]
