"""Fixtures: tiny models saved by Hugging Face's classes, with tokenizers of few letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from components.interchange.huggingface import CONVERTERS

#: Texts that the tokenizers split in different ways.
TEXTS = ["The lists, unnamed!", "names of the list", "ÉTÉ naïve 42", "it's  (the)\tlist"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
UNIGRAM = ["▁the", "▁", "▁list", "▁name", "un", "ed", *LETTERS, *"0123456789.,!'()", "[unused]"]
WORDPIECE = [
    "the",
    "list",
    "un",
    "##name",
    "##ed",
    "name",
    *LETTERS,
    *("##" + letter for letter in LETTERS),
    *"42,!'()",
]
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
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96}

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
    from tests.tokenization.test_bpe import PLAIN

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
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | names))
    return len(learned) + len(added)


def write_tokenizer(family: str, folder: Path) -> int:
    """Write the family's usual files; returns the number of pieces."""
    if family in ("bert", "distilbert"):
        # As published: special pieces at their usual ids.
        words = ["[PAD]", *(f"[unused{index}]" for index in range(3)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDPIECE]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}')
        return len(words)
    if family == "mpnet":
        words = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDPIECE, "<mask>"]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        named = {
            "cls_token": "<s>",
            "sep_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "[UNK]",
            "mask_token": "<mask>",
        }
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"do_lower_case": True, "tokenizer_class": "MPNetTokenizer", **named})
        )
        return len(words)
    if family == "openai-gpt":
        names = ["<unk>", *GPT, *(f"{left}{right}" for left, right in GPT_MERGES), "\n</w>"]
        (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
        merges = "\n".join(f"{left} {right}" for left, right in GPT_MERGES)
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "OpenAIGPTTokenizer"}')
        return len(names)
    if family in ("roberta", "gpt"):
        from tests.tokenization.test_bpe import PLAIN

        bytes_and_merges = PLAIN.pieces[5:]
        if family == "gpt":
            names = [*bytes_and_merges, "<|endoftext|>"]
            config = {"tokenizer_class": "GPT2Tokenizer"}
        else:
            names = ["<s>", "<pad>", "</s>", "<unk>", *bytes_and_merges, "<mask>"]
            config = {"tokenizer_class": "RobertaTokenizer"}
        (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
        merges = "\n".join(f"{left} {right}" for left, right in PLAIN.merges)
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return len(names)
    if family == "modernbert":
        return write_neox(folder)
    special = {
        "albert": ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        "xlm-roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        "xlnet": ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
    }[family]
    (folder / "tokenizer.json").write_text(json.dumps(unigram_json(special)))
    roles = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    names = dict(zip(roles, ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), strict=True))
    if family == "xlnet":
        names |= {"cls_token": "<cls>", "sep_token": "<sep>", "mask_token": "<mask>"}
    if family == "xlm-roberta":
        names |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))
    return len(special) + len(UNIGRAM)


def their_model(family: str, vocabulary: int) -> PreTrainedModel:
    torch.manual_seed(0)
    if family == "bert":
        return transformers.BertForPreTraining(transformers.BertConfig(vocab_size=vocabulary, **SIZES))
    if family == "mpnet":
        config = transformers.MPNetConfig(vocab_size=vocabulary, max_position_embeddings=66, **SIZES)
        return transformers.MPNetForMaskedLM(config)
    if family == "modernbert":
        roles = {"pad": -3, "bos": -5, "eos": -4, "cls": -5, "sep": -4}
        ids = {f"{role}_token_id": vocabulary + back for role, back in roles.items()}
        config = transformers.ModernBertConfig(
            vocab_size=vocabulary, local_attention=4, max_position_embeddings=64,
            **(SIZES | {"num_hidden_layers": 4, "intermediate_size": 40} | ids),
        )  # fmt: skip
        return transformers.ModernBertForMaskedLM(config)
    if family == "distilbert":
        config = transformers.DistilBertConfig(vocab_size=vocabulary, dim=24, n_layers=2, n_heads=2, hidden_dim=96)
        return transformers.DistilBertForMaskedLM(config)
    if family == "xlm-roberta":
        config = transformers.XLMRobertaConfig(
            vocab_size=vocabulary, type_vocab_size=1, max_position_embeddings=66, **SIZES
        )
        return transformers.XLMRobertaForMaskedLM(config)
    if family == "roberta":
        config = transformers.RobertaConfig(
            vocab_size=vocabulary, type_vocab_size=1, max_position_embeddings=66, **SIZES
        )
        return transformers.RobertaForMaskedLM(config)
    if family == "albert":
        config = transformers.AlbertConfig(vocab_size=vocabulary, embedding_size=16, **SIZES)
        return transformers.AlbertForPreTraining(config)
    if family == "openai-gpt":
        config = transformers.OpenAIGPTConfig(vocab_size=vocabulary, n_embd=24, n_layer=2, n_head=2, n_positions=64)
        return transformers.OpenAIGPTLMHeadModel(config)
    if family == "gpt":
        end = vocabulary - 1
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=vocabulary,
                n_embd=24,
                n_layer=2,
                n_head=2,
                n_positions=64,
                bos_token_id=end,
                eos_token_id=end,
            )
        )
    return transformers.XLNetLMHeadModel(
        transformers.XLNetConfig(vocab_size=vocabulary, d_model=24, n_layer=2, n_head=2, d_inner=96)
    )


@pytest.fixture(params=[*CONVERTERS, "distilbert", "xlm-roberta", "openai-gpt"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def save_folder(tmp_path: Path) -> SaveFolder:
    """`save_folder("bert")`: a folder as the hub holds it."""

    def save(family: str) -> Path:
        folder = tmp_path / f"published-{family}"
        folder.mkdir()
        vocabulary = write_tokenizer(family, folder)
        their_model(family, vocabulary).save_pretrained(folder)
        return folder

    return save
