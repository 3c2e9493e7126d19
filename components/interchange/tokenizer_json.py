"""Export of tokenizers as tokenizer.json, which AutoTokenizer of transformers reads."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Backend

from components.core.artifacts import write_json
from components.core.errors import ConfigError
from components.models.base import LanguageModel
from components.tokenization import Tokenizer
from components.tokenization.bert import BertWordsTokenizer
from components.tokenization.bpe import BytePairTokenizer
from components.tokenization.special import FIRST_ORDINARY, PAD, SPECIAL_PIECES, START
from components.tokenization.unigram import UnigramTokenizer

PROMPT: Final = "[PROMPT]"
ROLES: Final = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


def write_tokenizer(
    directory: Path, tokenizer: Tokenizer, model: LanguageModel, *, segments: bool = False, padding: int = PAD
) -> list[str]:
    """Write tokenizer.json and tokenizer_config.json; returns log lines.

    The exported tokenizer adds special pieces like `model.special_tokens`; with `segments` it also returns the segments
    of the pieces by default. `padding`: as of `Converter`.

    Raises:
        ConfigError: the library does not support the kind of tokenizer.
    """
    backend = library_tokenizer(tokenizer)
    if padding != PAD:
        content = json.loads(backend.to_str())
        content["model"]["vocab"] |= {SPECIAL_PIECES[PAD]: padding, SPECIAL_PIECES[padding]: PAD}
        backend = Backend.from_str(json.dumps(content))
    backend.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL_PIECES])
    backend.post_processor = template(model, tokenizer.pieces)
    backend.save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **dict(zip(ROLES, SPECIAL_PIECES, strict=True)),
    }
    if segments:
        config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if model.max_tokens is not None:
        config["model_max_length"] = model.max_tokens
    write_json(directory / "tokenizer_config.json", config, sort_keys=False)
    if tokenizer.segmentation.name == "none":
        return []
    return [
        f"tokenizer.json cannot express dictionary-based segmentation (segmenter {tokenizer.segmentation.name}): it "
        "needs segmented texts"
    ]


def library_tokenizer(tokenizer: Tokenizer) -> Backend:
    """The tokenizer of the library `tokenizers` with the same pieces, without special pieces around a text.

    Raises:
        ConfigError: the library does not support the kind of tokenizer, or its prompt.
    """
    if tokenizer.lead:
        raise ConfigError(
            "tokenizer.json cannot express the prompt of this encoder, whose last space belongs to the text; serve the "
            "model here, or export its encoder"
        )
    if isinstance(tokenizer, UnigramTokenizer):
        content = json.loads(tokenizer.backend.to_str())
        vocabulary = content["model"]["vocab"]
        vocabulary[:FIRST_ORDINARY] = [[piece, 0.0] for piece in SPECIAL_PIECES]
        return Backend.from_str(json.dumps(content))
    if isinstance(tokenizer, BertWordsTokenizer | BytePairTokenizer):
        return Backend.from_str(tokenizer.backend.to_str())
    raise ConfigError(f"a tokenizer of kind {tokenizer.kind!r} has no counterpart in tokenizer.json")


def template(model: LanguageModel, pieces: Sequence[str]) -> processors.TemplateProcessing:
    """`model.special_tokens` as a template for one text, and for a pair of texts with segments."""
    prompt = list(model.prompt)
    around = model.special_tokens([-1])
    at = around.index(-1)
    around[at - len(prompt) : at], at = [], at - len(prompt)
    before, after = ([SPECIAL_PIECES[id_] for id_ in part] for part in (around[:at], around[at + 1 :]))
    single = [*before, "$A", *after]
    pair = [*(f"{part}:0" for part in single), "$B:1", *(f"{part}:1" for part in after)]
    if before == [] and after[-1:] == [SPECIAL_PIECES[START]]:
        # XLNet: one class piece after all texts, in a separate segment.
        *ends, last = after
        single = ["$A:0", *(f"{part}:0" for part in ends), f"{last}:2"]
        pair = [*single[:-1], "$B:1", *(f"{part}:1" for part in ends), f"{last}:2"]
    used: list[Any] = [(piece, index) for index, piece in enumerate(SPECIAL_PIECES) if piece in {*before, *after}]
    if prompt:
        # One special token of the library may stand for several pieces.
        used.append({"id": PROMPT, "ids": prompt, "tokens": [pieces[id_] for id_ in prompt]})
        single, pair = ([*parts[:at], f"{PROMPT}:0", *parts[at:]] for parts in (single, pair))
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=used)
