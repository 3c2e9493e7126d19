"""Export: AutoModel and onnxruntime give the same output; families without a counterpart are errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from components.core.errors import ArtifactError, ConfigError
from components.interchange.huggingface import CONVERTERS
from components.interchange.importing import read_published
from components.models import FAMILIES
from components.models.encoder import Encoder, load_encoder
from components.registry.exports.champion import export_encoder
from components.registry.exports.pipelines import PLAIN
from components.tokenization import load_tokenizer
from components.tokenization.special import END, FIRST_ORDINARY, START
from tests.encoders import stored

#: The id of the padding that the class has.
PADDING = {"mpnet": 1}


SaveEncoder = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, random_encoder: Callable[..., Any]) -> SaveEncoder:
    """`save("bert")`: an encoder directory with random weights."""

    def write(family: str) -> Path:
        return stored(tmp_path / family, family, *random_encoder(family))

    return write


def padded(encoder: Encoder, texts: list[str]) -> tuple[Tensor, Tensor]:
    rows = [encoder.model.special_tokens(ids.tolist()) for ids in encoder.tokenizer.encode_batch(texts)]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids)
    return tokens, lengths


@pytest.mark.parametrize("family", list(CONVERTERS))
def test_transformers_gives_the_same_output_and_the_import_the_same_model(family, save, tmp_path):
    directory = save(family)
    export_encoder(directory, output=tmp_path / "out")
    encoder = load_encoder(directory)
    model = AutoModel.from_pretrained(tmp_path / "out").eval()
    tokenizer, padding = AutoTokenizer.from_pretrained(tmp_path / "out"), PADDING.get(family, 0)
    for text in ["a b  c", "", "dog s", "ab"]:
        tokens, lengths = padded(encoder, [text])
        # [PAD] and [UNK] change places in the class of MPNet.
        expected = [1 - id_ if padding and id_ < 2 else id_ for id_ in tokens[0].tolist()]
        assert tokenizer(text)["input_ids"] == expected
        with torch.no_grad():
            ours = encoder.model.hidden_states(tokens, lengths)
            kinds = {} if family in PLAIN else {"token_type_ids": (tokens == 2).long() * 2 * (family == "xlnet")}
            theirs = model(input_ids=torch.tensor([expected]), output_hidden_states=True, **kinds).hidden_states
        torch.testing.assert_close(list(theirs), ours, atol=1e-5, rtol=1e-5)
    assert [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id] == [padding, 1 - padding, 4]
    assert tokenizer.model_max_length == (encoder.model.max_tokens or tokenizer.model_max_length)
    back = read_published(tmp_path / "out")
    assert back.family == family
    assert back.tokenizer.pieces == encoder.tokenizer.pieces
    texts = ["a b c", "d", "a z b [MASK] c"]
    for actual, ids in zip(back.tokenizer.encode_batch(texts), encoder.tokenizer.encode_batch(texts), strict=True):
        assert actual.tolist() == ids.tolist()
    torch.testing.assert_close(back.model.state_dict(), encoder.model.state_dict(), atol=1e-6, rtol=1e-5)


def test_padded_rows_of_an_exported_mpnet(save, tmp_path):
    """Padding has the id that the class expects, and an unknown piece is none."""
    directory = save("mpnet")
    export_encoder(directory, output=tmp_path / "out")
    encoder, texts = load_encoder(directory), ["a b c d", "z", "zz a"]
    tokenizer, model = AutoTokenizer.from_pretrained(tmp_path / "out"), AutoModel.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        ours = encoder.model.hidden_states(*padded(encoder, texts))[-1]
        rows = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
        other = model.eval()(**rows).last_hidden_state
    inside = rows["attention_mask"].bool()
    assert rows["input_ids"].tolist() == [[2, 5, 6, 7, 8, 3], [2, 0, 3, 1, 1, 1], [2, 0, 5, 3, 1, 1]]
    torch.testing.assert_close(other[inside], ours[inside], atol=1e-5, rtol=1e-5)


def test_texts_of_xlnet_end_with_one_class_piece(save, tmp_path):
    export_encoder(save("xlnet"), output=tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("a b", "c"))
    single, pair = (tokenizer(*texts, return_token_type_ids=True) for texts in (("a b",), ("a b", "c")))
    assert single["input_ids"] == [*first, END, START]
    assert single["token_type_ids"] == [*[0] * (len(first) + 1), 2]
    assert pair["input_ids"] == [*first, END, *second, END, START]
    assert pair["token_type_ids"] == [*[0] * (len(first) + 1), *[1] * (len(second) + 1), 2]


#: They look up in Python how pieces are spelt.
NO_ONNX = ["elmo", "fasttext"]


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[] if family in ("ulmfit", "bert") else [pytest.mark.slow])
        for family in FAMILIES
        if family not in NO_ONNX
    ],
)
def test_onnxruntime_gives_the_same_output(family, save, tmp_path):
    directory = save(family)
    export_encoder(directory, output=tmp_path / "out", form="onnx")
    encoder = load_encoder(directory)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    assert load_tokenizer(tmp_path / "out" / "tokenizer").fingerprint() == encoder.tokenizer.fingerprint()
    for rows, width in ((1, 3), (2, 11), (5, 4)):
        tokens = torch.randint(FIRST_ORDINARY, 24, (rows, width))
        lengths = torch.randint(min(3, width), width + 1, (rows,))
        inside = torch.arange(width) < lengths[:, None]
        tokens = tokens.masked_fill(~inside, 0)
        with torch.no_grad():
            layers = encoder.model.hidden_states(tokens, lengths)
            summary = encoder.model.summary(layers[-1], lengths)
        actual = session.run(None, {"input_ids": tokens.numpy(), "attention_mask": inside.long().numpy()})
        np.testing.assert_allclose(actual[0], summary.numpy(), atol=1e-5, rtol=1e-4)
        for ours, other in zip(layers, actual[1:], strict=True):
            np.testing.assert_allclose(other[inside.numpy()], ours.numpy()[inside.numpy()], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", NO_ONNX)
def test_families_that_torch_cannot_export_are_an_error(family, save, tmp_path):
    with pytest.raises(ConfigError, match="cannot be exported to ONNX"):
        export_encoder(save(family), output=tmp_path / "out", form="onnx")
    assert not (tmp_path / "out").exists()


def test_families_and_kinds_without_a_counterpart(save, tmp_path):
    ulmfit = save("ulmfit")
    with pytest.raises(ConfigError, match="the family 'ulmfit' has no counterpart in transformers; .*--format onnx"):
        export_encoder(ulmfit, output=tmp_path / "out")
    with pytest.raises(ConfigError, match="the family 'ulmfit' has no context-independent word vectors"):
        export_encoder(ulmfit, output=tmp_path / "out", form="vectors")
    with pytest.raises(ConfigError, match="unknown format 'onx'; did you mean 'onnx'"):
        export_encoder(ulmfit, output=tmp_path / "out", form="onx")
    with pytest.raises(ArtifactError, match="not a complete output"):
        export_encoder(tmp_path, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
