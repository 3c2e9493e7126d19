"""Fixtures: tiny models saved by Hugging Face's classes, with tokenizers of few letters."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    PreTrainedModel,
)

from components.interchange.huggingface import CONVERTERS
from tests.tokenization.test_bpe import PLAIN

#: Texts that the tokenizers split in different ways.
TEXTS = ["The lists, unnamed!", "names of the list", "ÉTÉ naïve 42", "it's  (the)\tlist"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
UNIGRAM = ["▁the", "▁", "▁list", "▁name", "un", "ed", *LETTERS, *"0123456789.,!'()", "[unused]"]
WORDPIECE = ["the", "list", "un", "##name", "##ed", "name", *LETTERS, *map("##{}".format, LETTERS), *"42,!'()"]
#: GPT's BPE lacks the characters 4 and "!".
GPT = [*LETTERS, *"02,'()", *(f"{letter}</w>" for letter in LETTERS), *(f"{mark}</w>" for mark in "02,'()")]
GPT_MERGES = [
    ("t", "h"),
    ("th", "e</w>"),
    ("i", "s"),
    ("l", "is"),
    ("lis", "t</w>"),
    ("a", "m"),
    ("n", "am"),
    ("e", "d</w>"),
]
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = {"intermediate_size": 96}
LONG = {"type_vocab_size": 1, "max_position_embeddings": 66, **WIDE}
#: Kind of model in transformers -> settings of its config besides SIZES.
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": WIDE,
    "distilbert": {"hidden_dim": 96},
    "albert": {"embedding_size": 16, **WIDE},
    "mpnet": LONG,
    "roberta": LONG,
    "xlm-roberta": LONG,
    "modernbert": {
        "num_hidden_layers": 4,
        "intermediate_size": 40,
        "local_attention": 4,
        "max_position_embeddings": 64,
    },
    "openai-gpt": {"n_positions": 64},
    "gpt2": {"n_positions": 64},
    # Two heads share keys and values.
    "llama": {
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "max_position_embeddings": 64,
        "intermediate_size": 40,
    },
    "xlnet": {"d_head": 12, "d_inner": 96},
}

#: Of an added token.
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")

SaveFolder = Callable[..., Path]


def unigram_json(special: list[str]) -> dict[str, object]:
    """tokenizer.json of ALBERT or XLNet, as their newer versions write it."""
    names = [*special, *UNIGRAM]
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": name, "special": True, **dict.fromkeys(FLAGS, False)}
            for index, name in enumerate(special)
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}, {"type": "NFKD"},
            {"type": "StripAccents"}, {"type": "Lowercase"},
        ]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        ]},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "Unigram", "unk_id": special.index("<unk>"), "byte_fallback": False,
                  "vocab": [[name, -float(index)] for index, name in enumerate(names)]},
    }  # fmt: skip


def write_neox(folder: Path) -> int:
    """tokenizer.json as of ModernBERT: composed text, byte-level BPE, runs of spaces as pieces, special pieces last."""
    learned = PLAIN.pieces[5:]
    added = ["|||IP|||", "<|padding|>", "   ", "  ", "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[unused0]"]
    ordinary = {"|||IP|||", "   ", "  ", "[unused0]"}
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": len(learned) + index, "content": name, "special": name not in ordinary,
             **dict.fromkeys(FLAGS, False), "normalized": name in ordinary, "lstrip": name == "[MASK]"}
            for index, name in enumerate(added)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": {"type": "TemplateProcessing", "pair": [], "special_tokens": {}, "single": [
            {"Sequence": {"id": "A", "type_id": 0}}]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {name: index for index, name in enumerate(learned)},
                  "merges": [list(pair) for pair in PLAIN.merges]},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    names = names_of("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | names))
    return len(learned) + len(added)


def change(folder: Path, name: str = "config.json", /, **values: object) -> None:
    """Set keys of a JSON file of a folder."""
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def names_of(*pieces: str) -> dict[str, str]:
    """The names of the special pieces in tokenizer_config.json."""
    return {f"{role}_token": piece for role, piece in zip(("pad", "unk", "cls", "sep", "mask"), pieces, strict=True)}


def write_tokenizer(family: str, folder: Path) -> int:
    """Write the family's usual files; returns the number of pieces."""
    if family == "modernbert":
        return write_neox(folder)
    if family in ("bert", "distilbert", "mpnet"):
        # As published: special pieces at their usual ids.
        words = ["[PAD]", *(f"[unused{index}]" for index in range(3)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDPIECE]
        config = {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}
        if family == "mpnet":
            words = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDPIECE, "<mask>"]
            config |= {"tokenizer_class": "MPNetTokenizer", **names_of("<pad>", "[UNK]", "<s>", "</s>", "<mask>")}
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    elif family in ("openai-gpt", "roberta", "gpt", "llama"):
        learned, pairs = PLAIN.pieces[5:], PLAIN.merges
        words, config = [*learned, "<|endoftext|>"], {"tokenizer_class": "GPT2Tokenizer"}
        if family == "roberta":
            words = ["<s>", "<pad>", "</s>", "<unk>", *learned, "<mask>"]
            config = {"tokenizer_class": "RobertaTokenizer"}
        elif family == "openai-gpt":
            pairs, config = GPT_MERGES, {"tokenizer_class": "OpenAIGPTTokenizer"}
            words = ["<unk>", *GPT, *map("".join, pairs), "\n</w>"]
        (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(words)}))
        merges = "\n".join(map(" ".join, pairs))
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
        if family == "llama":
            # As SmolLM has it.
            backend = Backend(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
            digits, level = (
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            )
            backend.pre_tokenizer = pre_tokenizers.Sequence([digits, level])
            backend.add_special_tokens(["<|endoftext|>"])
            backend.save(str(folder / "tokenizer.json"))
            config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    else:
        special, named = {
            "albert": (["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], ("[CLS]", "[SEP]", "[MASK]")),
            "xlm-roberta": (["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ("<s>", "</s>", "<mask>")),
            "xlnet": (
                ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
                ("<cls>", "<sep>", "<mask>"),
            ),
        }[family]
        words = [*special, *UNIGRAM]
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **names_of("<pad>", "<unk>", *named)}
        (folder / "tokenizer.json").write_text(json.dumps(unigram_json(special)))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(words)


def their_model(family: str, vocabulary: int) -> PreTrainedModel:
    torch.manual_seed(0)
    kind = "gpt2" if family == "gpt" else family
    # Of special pieces that are the last of the vocabulary.
    back = {"modernbert": {"pad": 3, "bos": 5, "eos": 4, "cls": 5, "sep": 4}, "gpt2": {"bos": 1, "eos": 1}}.get(
        kind, {}
    )
    ids = {f"{role}_token_id": vocabulary - place for role, place in back.items()}
    config = AutoConfig.for_model(kind, vocab_size=vocabulary, **SIZES | CONFIGS[kind] | ids)
    auto = {"modernbert": AutoModelForMaskedLM, "llama": AutoModelForCausalLM}.get(kind, AutoModelForPreTraining)
    return auto.from_config(config)


@pytest.fixture(params=[*CONVERTERS, "distilbert", "xlm-roberta", "openai-gpt"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> SaveFolder:
    """`written("bert")`: a folder as the hub holds it, which no test changes."""

    @cache
    def write(family: str) -> Path:
        folder = tmp_path_factory.mktemp(family)
        vocabulary = write_tokenizer(family, folder)
        their_model(family, vocabulary).save_pretrained(folder)
        return folder

    return write


@pytest.fixture
def save_folder(tmp_path: Path, written: SaveFolder) -> SaveFolder:
    """`save_folder("bert")`: a copy of such a folder."""
    return lambda family: shutil.copytree(written(family), tmp_path / f"published-{family}")
