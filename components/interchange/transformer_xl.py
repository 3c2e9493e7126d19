"""Import of `TransfoXLLMHeadModel` of transformers (transfo-xl-wt103: Dai et al. 2019) as a Transformer-XL.

Transformers has removed the class. The folder holds config.json, the weights as model.safetensors or pytorch_model.bin,
and the words as vocab.txt or vocab.bin. <eos> and <unk> become [SEP] and [UNK]; the other special pieces have no
counterpart: their embeddings are zero and their bias is `NEVER`. They are inserted before the first cluster, so every
word stays in its cluster. The class began a text with a memory of zeros, to which it attended; here, as in the authors'
code for PyTorch, the memory is empty then.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from components.core.errors import ArtifactError
from components.interchange.huggingface import Restored
from components.interchange.huggingface.rules import Keys, Reader, Rule, module, normalised, plain, restored, transposed
from components.interchange.published import (
    NEVER,
    Imported,
    check_family,
    chosen_rows,
    errors_of,
    plain_content,
    read_tensors,
    texts_in,
)
from components.interchange.words import word_tokenizer, words_log
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES, UNK

FAMILY: Final = "transformer-xl"
#: Value of model_type in config.json.
MODEL_TYPE: Final = "transfo-xl"
VOCABULARIES: Final = ("vocab.txt", "vocab.bin")
#: Special piece -> word.
WORDS: Final = {UNK: "<unk>", END: "<eos>"}
#: `memory` of an imported model in training, as in the published training on WikiText-103. `mem_len` is the memory of
#: evaluation.
TRAINING_MEMORY: Final = 384
_KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 267735),
        "width": ("d_model", 1024),
        "layers": ("n_layer", 18),
        "heads": ("n_head", 16),
        "feedforward": ("d_inner", 4096),
        "divide": ("div_val", 4),
        "evaluation_memory": ("mem_len", 1600),
    },
    values={
        "dropout": ("dropout", 0.1),
        "dropout_attention": ("dropatt", 0.0),
        "clamp": ("clamp_len", 1000),
        "same_length": ("same_length", True),
        "cutoffs": ("cutoffs", [20000, 40000, 200000]),
    },
    fixed={"attn_type": 0, "adaptive": True, "pre_lnorm": False, "layer_norm_epsilon": 1e-5},
    derived=lambda width: {"d_embed": width},
)
_EMBEDDING: Final = "transformer.word_emb"


def from_transfo_xl(
    folder: Path, *, config: Mapping[str, Any], weights: Sequence[Path], family: str | None, digest: str
) -> Imported:
    """Import a folder with the content of config.json and the files of the weights.

    Raises:
        ArtifactError: the vocabulary is missing or damaged, the files do not match, or config.json has unsupported
            values.
        ConfigError: another family is requested.
    """
    check_family(family, folder, FAMILY)
    tensors = read_tensors(weights)
    with errors_of(folder):
        settings, vocabulary, given, _ = _restored(config, tensors)
    path = vocabulary_file(folder)
    words = _words(path)
    if len(words) != vocabulary:
        raise ArtifactError(f"{path}: has {len(words)} words, but the model has {vocabulary} rows")
    row_of = {word: row for row, word in enumerate(words)}
    special = [row_of.get(WORDS.get(piece, ""), -1) for piece in range(FIRST_ORDINARY)]
    rows = torch.tensor([*special, *(row for row in range(vocabulary) if row not in special)])
    first = len(given["pieces.tables.0"])
    if max(special) >= first:
        raise ArtifactError(f"{path}: {' and '.join(WORDS.values())} are not among the first {first} words")
    given["pieces.tables.0"] = chosen_rows(given["pieces.tables.0"], rows[rows < first], 0.0)
    given["pieces.bias"] = chosen_rows(given["pieces.bias"], rows, NEVER)
    settings["cutoffs"] = [cutoff + special.count(-1) for cutoff in settings["cutoffs"]]
    ordinary = [words[row] for row in rows[FIRST_ORDINARY:].tolist()]
    tokenizer = word_tokenizer(
        [*SPECIAL_PIECES, *(f" {word}" if word in SPECIAL_PIECES else word for word in ordinary)]
    )
    log = [f"{folder}: model_type {MODEL_TYPE!r} -> family {FAMILY!r}, {settings}", *words_log(tokenizer)]
    return Imported.of(FAMILY, settings, given, tokenizer, digest, log)


def vocabulary_file(folder: Path) -> Path:
    for name in VOCABULARIES:
        if (folder / name).is_file():
            return folder / name
    raise ArtifactError(
        f"{folder}: no {' or '.join(VOCABULARIES)}; a pickle (vocab.pkl) can execute code: where you trust it, write "
        "the list idx2sym that it holds as vocab.txt, one word per line"
    )


def _words(path: Path) -> list[str]:
    if path.suffix == ".txt":
        lines = path.read_text(encoding="utf-8").split("\n")
        return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))
    content = plain_content(path, remedy="write the words as vocab.txt, one per line")
    words = content.get("idx2sym") if isinstance(content, dict) else None
    return texts_in(words, f"{path}: has no list of words idx2sym")


def _restored(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    reader = Reader(config, _KEYS)
    settings = reader.read()
    reader.require("d_head", None, settings["width"] // settings["heads"])
    cutoffs, clamp = settings["cutoffs"], settings["clamp"]
    if not isinstance(cutoffs, list) or not all(isinstance(cutoff, int) for cutoff in cutoffs):
        reader.problems.append(f"cutoffs is {cutoffs!r}, expected a list of whole numbers")
    reader.check()
    settings |= {
        "memory": min(TRAINING_MEMORY, settings["evaluation_memory"]),
        "clamp": clamp if isinstance(clamp, int) and clamp > 0 else 0,
        "cutoffs": [cutoff for cutoff in cutoffs if cutoff < settings["vocabulary"]],
        "tied_biases": not config.get("untie_r", True),
        "output_projection": "crit.out_projs.0" in tensors,
    }
    clusters, layers = range(len(settings["cutoffs"]) + 1), range(settings["layers"])
    copies = {f"crit.out_layers.{index}.weight": f"{_EMBEDDING}.emb_layers.{index}.weight" for index in clusters}
    copies |= {f"crit.out_projs.{index}": f"{_EMBEDDING}.emb_projs.{index}" for index in clusters[1:]}
    for bias in ("r_w_bias", "r_r_bias"):
        copies |= {f"transformer.layers.{layer}.dec_attn.{bias}": f"transformer.{bias}" for layer in layers}
    named = normalised(tensors, prefix="transformer.", copies=copies, ignored=("pos_emb.inv_freq",))
    return restored(FAMILY, settings, [*_block_rules(), *_vocabulary_rules(settings)], named)


def _block_rules() -> list[Rule]:
    layer = "transformer.layers.{layer}"
    packed = (f"{layer}.dec_attn.qkv_net.weight",)
    ours = "blocks.{layer}.attention"
    return [
        # The rows of query, key and value in one matrix (3 D, D).
        Rule(f"{ours}.query.weight", packed, lambda q: (q.repeat(3, 1),), lambda qkv: qkv.chunk(3)[0]),
        Rule(
            f"{ours}.key_value.weight",
            packed,
            lambda kv: (kv.repeat(2, 1)[len(kv) // 2 :],),
            lambda qkv: qkv[len(qkv) // 3 :],
        ),
        plain(f"{ours}.position.weight", f"{layer}.dec_attn.r_net.weight"),
        plain(f"{ours}.output.weight", f"{layer}.dec_attn.o_net.weight"),
        plain(f"{ours}.content_bias", f"{layer}.dec_attn.r_w_bias"),
        plain(f"{ours}.position_bias", f"{layer}.dec_attn.r_r_bias"),
        plain("content_bias", "transformer.r_w_bias"),
        plain("position_bias", "transformer.r_r_bias"),
        *module("blocks.{layer}.attention_norm", f"{layer}.dec_attn.layer_norm"),
        *module("blocks.{layer}.expand", f"{layer}.pos_ff.CoreNet.0"),
        *module("blocks.{layer}.contract", f"{layer}.pos_ff.CoreNet.3"),
        *module("blocks.{layer}.norm", f"{layer}.pos_ff.layer_norm"),
    ]


def _vocabulary_rules(settings: Mapping[str, Any]) -> list[Rule]:
    vocabulary, divided = settings["vocabulary"], settings["divide"] > 1
    bounds = [0, *settings["cutoffs"], vocabulary]
    sizes = [high - low for low, high in zip(bounds, bounds[1:], strict=False)]
    parts: Sequence[int] = range(len(sizes)) if divided else (0,)
    rules = [
        Rule(
            "pieces.bias",
            tuple(f"crit.out_layers.{index}.bias" for index in parts),
            lambda bias: bias.split(sizes if divided else vocabulary),
            lambda *biases: torch.cat(biases),
        ),
        plain("pieces.cluster", "crit.cluster_weight"),
        plain("pieces.cluster_bias", "crit.cluster_bias"),
        transposed("pieces.output_projection", "crit.out_projs.0"),
    ]
    for index, low in enumerate(bounds[:-1]):
        if divided:
            rules.append(plain(f"pieces.tables.{index}", f"{_EMBEDDING}.emb_layers.{index}.weight"))
            rules.append(transposed(f"pieces.projections.{index}", f"{_EMBEDDING}.emb_projs.{index}"))
        else:
            # One table for all clusters.
            rules.append(
                Rule(
                    f"pieces.tables.{index}",
                    (f"{_EMBEDDING}.emb_layers.0.weight",),
                    lambda table: (table.new_empty(vocabulary, table.shape[1]),),
                    lambda table, low=low, size=sizes[index]: table[low : low + size],
                )
            )
    return rules
