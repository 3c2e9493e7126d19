"""Import of fastai's weight files: the same hidden states and loss; errors.

fastai itself is not needed: `FastaiLanguageModel` has its parts under its names (fastai/text/models/awdlstm.py).
"""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.core.errors import ArtifactError, ConfigError
from components.interchange.importing import import_encoder, read_published
from components.interchange.words import NEVER, FastaiModel, from_fastai, read_fastai
from components.models.encoder import build_model, load_encoder
from components.models.ulmfit import AWDLSTM
from components.settings.training import LanguageModelTraining
from components.tokenization.special import END, MASK, PAD, SPECIAL_PIECES, START, UNK
from components.training.pretraining.pretrain import PretrainJob, pretrain

WORDS = ["xxunk", "xxpad", "xxbos", "xxmaj", "the", "film", "was", "good", ".", "xxfake", "xxfake"]
EMBEDDING, HIDDEN = 6, 10
State = dict[str, Tensor]


class WeightDropout(nn.Module):
    """fastai's: the weights proper are `weight_hh_l0_raw`; evaluation copies them into the LSTM."""

    def __init__(self, module: nn.LSTM) -> None:
        super().__init__()
        self.module = module
        self.weight_hh_l0_raw = nn.Parameter(module.weight_hh_l0.data.clone())
        # What a dropout mask has left there.
        module.weight_hh_l0.data.mul_(torch.rand_like(module.weight_hh_l0) > 0.5)

    def forward(self, x: Tensor) -> Tensor:
        self.module.weight_hh_l0.data = self.weight_hh_l0_raw.data
        output: Tensor = self.module(x)[0]
        return output


class EmbeddingDropout(nn.Module):
    def __init__(self, emb: nn.Embedding) -> None:
        super().__init__()
        self.emb = emb


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Embedding(len(WORDS), EMBEDDING, padding_idx=1)
        self.encoder_dp = EmbeddingDropout(self.encoder)
        widths = [EMBEDDING, HIDDEN, HIDDEN, EMBEDDING]
        self.rnns = nn.ModuleList(
            WeightDropout(nn.LSTM(inputs, outputs, batch_first=True))
            for inputs, outputs in zip(widths, widths[1:], strict=False)
        )


class Decoder(nn.Module):
    def __init__(self, tied: nn.Parameter) -> None:
        super().__init__()
        self.decoder = nn.Linear(EMBEDDING, len(WORDS))
        self.decoder.weight = tied


class FastaiLanguageModel(nn.Sequential):
    def __init__(self) -> None:
        encoder = Encoder()
        super().__init__(encoder, Decoder(encoder.encoder.weight))

    def states(self, tokens: Tensor) -> list[Tensor]:
        outputs = [self[0].encoder(tokens)]
        for rnn in self[0].rnns:
            outputs.append(rnn(outputs[-1]))
        return outputs

    def log_probabilities(self, tokens: Tensor) -> Tensor:
        return F.log_softmax(self[1].decoder(self.states(tokens)[-1]), dim=-1)


@pytest.fixture
def theirs() -> FastaiLanguageModel:
    model = FastaiLanguageModel()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture
def state(theirs: FastaiLanguageModel) -> State:
    return {name: tensor.clone() for name, tensor in theirs.state_dict().items()}


def built(found: FastaiModel) -> AWDLSTM:
    model = build_model("ulmfit", vocabulary=len(found.pieces), settings=found.settings)
    model.load_state_dict(found.tensors)
    return model.eval()


def ours(found: FastaiModel, tokens: Tensor) -> Tensor:
    """Ids of the imported vocabulary for fastai's ids, by their words."""
    special = {"xxpad": PAD, "xxunk": UNK, "xxbos": END}
    place = {word: index for index, word in enumerate(found.pieces)} | special
    return torch.tensor([[place[WORDS[id_]] for id_ in row] for row in tokens.tolist()])


def test_same_states_and_same_loss(theirs, state):
    assert {"0.rnns.2.weight_hh_l0_raw", "0.rnns.0.module.weight_hh_l0", "1.decoder.bias"} <= state.keys()
    actual = from_fastai(state, WORDS)
    assert actual.settings == {
        "embedding": EMBEDDING, "hidden": HIDDEN, "layers": 3,
        "dropout_embedding": 0.02, "dropout_input": 0.25, "dropout_weight": 0.2, "dropout_hidden": 0.15,
        "dropout_output": 0.1, "activation": 2.0, "slowness": 1.0,
    }  # fmt: skip
    assert actual.pieces[:7] == [*SPECIAL_PIECES, "xxmaj", "the"]
    model = built(actual)
    stream = torch.randint(0, 9, (4, 12))
    tokens = ours(actual, stream)
    states = model.hidden_states(tokens, torch.full((4,), 12))
    torch.testing.assert_close(states, theirs.eval().states(stream), atol=1e-5, rtol=1e-5)
    result = model.losses({"tokens": tokens[:, :-1], "targets": tokens[:, 1:]})
    expected = F.nll_loss(theirs.log_probabilities(stream[:, :-1]).flatten(0, 1), stream[:, 1:].flatten())
    torch.testing.assert_close(result.loss, expected, atol=1e-5, rtol=1e-5)


def test_pieces_without_a_counterpart_have_no_probability(state):
    actual = from_fastai(state, WORDS)
    for row in (START, MASK):
        assert float(actual.tensors["bias"][row]) == NEVER
        assert not actual.tensors["embedding"][row].any()


def test_names_of_fastai_1_and_a_bare_encoder(state):
    expected = from_fastai(state, WORDS).tensors
    first = {
        name.replace("encoder_dp.emb", "encoder_with_dropout.embed").replace(
            "weight_hh_l0_raw", "module.weight_hh_l0_raw"
        ): tensor
        for name, tensor in state.items()
        if not name.endswith("module.weight_hh_l0")
    }
    assert "0.rnns.1.module.weight_hh_l0_raw" in first
    alone = {name.removeprefix("0."): tensor for name, tensor in state.items() if name.startswith("0.")}
    for other, same in ((first, expected.keys()), (alone, expected.keys() - {"bias"})):
        tensors = from_fastai(other, WORDS).tensors
        for name in same:
            assert torch.equal(tensors[name], expected[name])


def without(name: str) -> Callable[[State], Any]:
    return lambda state: state.pop(name)


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[State], Any]:
    return lambda state: state.update({name: change(state[name])})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("0.encoder.weight"), "there is no tensor 0.encoder.weight"),
        (
            lambda state: state.update({name: torch.zeros(()) for name in state if "coder" in name}),
            "there is no tensor 0.encoder.weight",
        ),
        (without("0.rnns.1.module.bias_ih_l0"), "the weights do not fit each other: missing rnns.1.bias_ih_l0"),
        (
            changed("0.rnns.0.module.weight_ih_l0", lambda t: t[:, 1:]),
            r"rnns.0.weight_ih_l0 is \(40, 5\), expected \(40, 6\)",
        ),
        (changed("1.decoder.bias", lambda t: t[1:]), r"decoder.bias is \(10,\)"),
        (
            changed("1.decoder.weight", lambda t: t + 1),
            "decoder.weight differs from encoder.weight: untied output layers are not supported",
        ),
        (
            lambda state: state.update({"0.rnns.0.module.weight_ih_l0_reverse": torch.zeros(1)}),
            "surplus rnns.0.weight_ih_l0_reverse",
        ),
        (
            lambda state: [state.pop(name) for name in list(state) if name.startswith("0.rnns.1.")],
            "missing rnns.1.weight_hh_l0; .*surplus rnns.2.weight_hh_l0",
        ),
    ],
)
def test_tensors_that_do_not_fit(state, damage, message):
    damage(state)
    with pytest.raises(ArtifactError, match=message):
        from_fastai(state, WORDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (WORDS[1:], "10 words in the vocabulary for 11 rows of the embedding"),
        ([*WORDS[:-1], "the"], "'the' occurs in the vocabulary twice"),
        ([*WORDS[:-1], "[MASK]"], r"'\[MASK\]' occurs in the vocabulary twice, or is the name of a special piece"),
    ],
)
def test_vocabularies_that_do_not_fit(state, words, message):
    with pytest.raises(ArtifactError, match=message):
        from_fastai(state, words)


@pytest.fixture
def files(state: State, tmp_path: Path) -> tuple[Path, Path]:
    torch.save(state, tmp_path / "lm.pth")
    (tmp_path / "itos.json").write_text(json.dumps(WORDS))
    return tmp_path / "lm.pth", tmp_path / "itos.json"


@pytest.mark.parametrize("wrapped", [False, True])
def test_files_are_read(files, state, wrapped):
    if wrapped:
        torch.save({"model": state, "opt": {"state": [1, 2]}}, files[0])
    expected, actual = from_fastai(state, WORDS), read_fastai(*files)
    assert (actual.settings, actual.pieces) == (expected.settings, expected.pieces)
    assert all(torch.equal(actual.tensors[name], tensor) for name, tensor in expected.tensors.items())


class Danger:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("must-not-exist"),))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("itos.json", None, "itos.json: does not exist"),
        ("itos.json", b"{", "itos.json: not readable as JSON"),
        ("itos.json", b'{"a": 1}', "itos.json: expected a list of words"),
        ("lm.pth", None, "lm.pth: does not exist"),
        ("lm.pth", b"PK", "lm.pth: does not consist of tensors only; save it with learn.save"),
        ("lm.pth", b"", "lm.pth: does not consist of tensors only"),
    ],
)
def test_damaged_files(files, name, content, message):
    path = next(path for path in files if path.name == name)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(ArtifactError, match=re.escape(message)):
        read_fastai(*files)


def test_a_pickle_is_not_executed(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Danger()}, files[0])
    with pytest.raises(ArtifactError, match="does not consist of tensors only"):
        read_fastai(*files)
    (tmp_path / "itos.pkl").write_bytes(pickle.dumps(Danger()))
    with pytest.raises(ArtifactError, match=r"itos.pkl: a vocabulary is read from .json only.* json.dump"):
        read_fastai(files[0], tmp_path / "itos.pkl")
    assert not (tmp_path / "must-not-exist").exists()


def test_a_fastai_file_becomes_an_encoder(files, state, tmp_path):
    log = import_encoder(files[0], output=tmp_path / "encoder")
    encoder = load_encoder(tmp_path / "encoder", verify=True)
    assert (encoder.family, encoder.trained, encoder.tokenizer.kind) == ("ulmfit", True, "word")
    (ids,) = encoder.tokenizer.encode_batch(["The film, good"])
    assert [encoder.tokenizer.pieces[id_] for id_ in ids] == ["the", "film", "[UNK]", "good"]
    tensors = from_fastai(state, WORDS).tensors
    torch.testing.assert_close(dict(encoder.model.state_dict()), tensors, rtol=0, atol=0)
    assert "words can occur in tokenized text" in log[-1]


def test_dropouts_and_penalties_beside_a_fastai_file(files, tmp_path):
    def job(**model):
        training = LanguageModelTraining(tokens=1, rate=0.1, batch_size=1)
        output = tmp_path / "-".join(["encoder", *model])
        return PretrainJob(
            family="ulmfit", source=files[0], model=model, output=output, tokens=None, tokenizer=None,
            training=training,
        )  # fmt: skip

    published = load_encoder(pretrain(job())).model
    assert (published.config.dropout_input, published.config.activation) == (0.25, 2.0)
    model = load_encoder(pretrain(job(dropout_input=0.4, slowness=0.0))).model
    changed = {"dropout_input": 0.4, "slowness": 0.0}
    assert model.config == published.config.model_copy(update=changed)
    assert model.drop_input.probability == 0.4
    torch.testing.assert_close(model.state_dict(), published.state_dict(), rtol=0, atol=0)
    with pytest.raises(ConfigError, match=r"lm.pth: the source determines hidden; remove it"):
        pretrain(job(hidden=7))


def test_a_fastai_file_without_its_vocabulary(files, tmp_path):
    words = files[1].rename(tmp_path / "words.json")
    with pytest.raises(ArtifactError, match=r"itos.json: does not exist; name the vocabulary of lm.pth with --vocab"):
        read_published(files[0])
    assert read_published(files[0], vocabulary=words).family == "ulmfit"
    with pytest.raises(ConfigError, match="not supported by the family 'bert'; known: ulmfit"):
        read_published(files[0], vocabulary=words, family="bert")
