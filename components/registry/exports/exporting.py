"""`headstart export`: conversion of an encoder directory for other libraries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from safetensors.torch import save_file

from components.core.artifacts import MANIFEST
from components.core.errors import ConfigError, nearest
from components.core.outputs import named_output
from components.interchange.huggingface import CONVERTERS
from components.interchange.tokenizer_json import write_tokenizer
from components.interchange.vectors_text import write_vectors
from components.learners.words.classifier import DESCRIPTION
from components.models.encoder import CONFIG, TOKENIZER, WEIGHTS, Encoder, load_encoder
from components.models.static import StaticVectors
from components.registry.exports.onnx import MODEL, write_onnx
from components.tokenization.special import FIRST_ORDINARY

KIND: Final = "export"
VECTORS: Final = "vectors.txt"
FORMS: Final = ("huggingface", "onnx", "vectors")


def export_encoder(encoder: Path, *, output: Path, form: str = "huggingface", overwrite: bool = False) -> list[str]:
    """Convert an encoder directory and write the directory `output`; returns log lines.

    Args:
        form: `huggingface`: a folder for AutoModel and AutoTokenizer of transformers, with the same outputs and ids;
            `onnx`: the computation graph, and the tokenizer; `vectors`: a text file of word vectors (static families).

    Raises:
        ArtifactError: `encoder` is not a complete encoder directory, or the output exists.
        ConfigError: the format is unknown, or does not support the family or its tokenizer; or `encoder` is a words
            model.
    """
    if form not in FORMS:
        raise ConfigError(f"unknown format {form!r}{nearest(form, FORMS)}")
    if (Path(encoder) / DESCRIPTION).is_file():
        raise ConfigError(
            f"{encoder}: is a words model, which has no encoder to export; it is served by Headstart only"
        )
    loaded = load_encoder(Path(encoder), verify=True)
    assert loaded.manifest is not None
    with named_output(output, kind=KIND, overwrite=overwrite) as draft:
        if form == "huggingface":
            notes = _huggingface(draft.path, loaded)
        elif form == "onnx":
            notes = write_onnx(draft.path / MODEL, loaded.model)
            shutil.copytree(Path(encoder) / TOKENIZER, draft.path / TOKENIZER, ignore=shutil.ignore_patterns(MANIFEST))
        else:
            notes = _vectors(draft.path, loaded)
        draft.facts |= {"family": loaded.family, "form": form, "encoder": loaded.manifest.digest}
    return notes


def _huggingface(directory: Path, encoder: Encoder) -> list[str]:
    if encoder.family not in CONVERTERS:
        raise ConfigError(
            f"the family {encoder.family!r} has no counterpart in transformers"
            f"{nearest(encoder.family, CONVERTERS)}; `--format onnx` supports every encoder that ONNX can express"
        )
    config, tensors = CONVERTERS[encoder.family].to_huggingface(encoder.model)
    (directory / CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    return [
        f"{config['architectures'][0]}: {len(tensors)} tensors",
        *write_tokenizer(directory, encoder.tokenizer, encoder.model),
    ]


def _vectors(directory: Path, encoder: Encoder) -> list[str]:
    if not isinstance(encoder.model, StaticVectors):
        raise ConfigError(
            f"the family {encoder.family!r} has no context-independent word vectors; static families have"
        )
    words = encoder.tokenizer.pieces[FIRST_ORDINARY:]
    write_vectors(directory / VECTORS, words, encoder.model.vectors()[FIRST_ORDINARY:].numpy())
    return [f"{VECTORS}: {len(words)} vectors"]
