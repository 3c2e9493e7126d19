"""The contract of a family, tested for every entry of the table."""

import pytest
import torch
from torch import Tensor

from components.interchange.huggingface import CONVERTERS
from components.models import FAMILIES
from components.models.base import Batch, LanguageModel
from components.models.encoder import build_model, load_encoder
from components.tokenization.special import SPECIAL_PIECES
from tests.conftest import python
from tests.encoders import stored
from tests.models.conftest import ROWS, VOCABULARY

Texts = tuple[Tensor, Tensor]


def train(model: LanguageModel, batch: Batch, *, steps: int, rate: float = 2e-3) -> list[float]:
    """Losses per target while the model overfits one batch, every second step under autocast."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    model.train()
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=step % 2 == 1):
            result = model.losses(batch)
        optimizer.zero_grad()
        result.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        total, count = result.sums["tokens"]
        losses.append(float(total) / int(count))
    return losses


def states(model: LanguageModel, texts: Texts) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        return model.hidden_states(*texts)


def test_it_learns(model, name, batch_of):
    if FAMILIES[name].objective == "static":
        # Static vectors need larger rates, and their loss has a lower bound because of the noise words.
        losses = train(model, batch_of(name), steps=25, rate=0.03)
        assert losses[-1] < losses[0] * 0.75
        return
    losses = train(model, batch_of(name), steps=40, rate=0.01)
    assert losses[0] > 2.5
    assert losses[-1] < losses[0] / 2


def test_it_runs_with_bfloat16_weights(model, name, batch_of, texts):
    exact = float(model.eval().losses(batch_of(name)).loss.detach())
    model.bfloat16()
    loss = model.losses(batch_of(name)).loss
    loss.backward()
    assert float(loss.detach()) == pytest.approx(exact, rel=0.02)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
    assert all(state.isfinite().all() for state in states(model, texts))


def test_the_mean_loss_of_the_workers_is_that_of_one(build, name, batch_of):
    """Every target of the global batch has the same weight, whichever worker reads it; so the gradients agree, too."""
    dropout = dict.fromkeys((key for key in FAMILIES[name].config.model_fields if key.startswith("dropout")), 0.0)
    model = build(**dropout).train()
    alone = model.losses(batch_of(name, 3)).loss
    alone.backward()
    expected = {key: parameter.grad for key, parameter in model.named_parameters()}
    model.zero_grad()
    mean = torch.stack([model.losses(batch_of(name, 3, rank, 4)).loss for rank in range(4)]).mean()
    mean.backward()
    assert float(mean.detach()) == pytest.approx(float(alone.detach()), rel=1e-6)
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[key], rtol=1e-4, atol=1e-6)


def test_a_loaded_model_equals_the_saved_one(
    model, name, batch_of, texts, tmp_path,
    tokenizer_directory,
):  # fmt: skip
    train(model, batch_of(name), steps=2)
    tokenizer = tokenizer_directory(FAMILIES[name].tokenizers[0])
    loaded = load_encoder(stored(tmp_path / "encoder", name, model, tokenizer), verify=True)
    assert (loaded.family, loaded.trained, loaded.model.config) == (name, True, model.config)
    assert not loaded.model.training
    torch.testing.assert_close(states(model, texts), states(loaded.model, texts), rtol=0, atol=0)
    loss = model.losses(batch_of(name)).loss
    assert torch.equal(loss, loaded.model.losses(batch_of(name)).loss)


def test_padding_never_changes_real_positions(model, texts):
    tokens, lengths = texts
    alone = [
        states(model, (tokens[row : row + 1, :length], lengths[row : row + 1])) for row, length in enumerate(lengths)
    ]
    for layer, together in enumerate(states(model, texts)):
        assert model.summary(together, lengths).shape == (len(tokens), together.shape[-1])
        for row, length in enumerate(lengths):
            torch.testing.assert_close(together[row, :length], alone[row][layer][0], atol=1e-5, rtol=1e-5)


def test_each_layer_uses_its_group_and_those_below(model, texts):
    """With shared weights there are fewer groups than layers, and the upper layers depend on all groups. No layer uses
    a parameter that is in no group."""
    groups = model.eval().layer_groups()
    layers = model.hidden_states(*texts)
    assert len(groups) <= len(layers)
    depths = {id(parameter): depth for depth, group in enumerate(groups) for parameter in group}
    assert len(depths) == sum(map(len, groups))
    parameters = list(model.parameters())
    for index, layer in enumerate(layers):
        gradients = torch.autograd.grad(layer.float().square().sum(), parameters, allow_unused=True, retain_graph=True)
        expected = [depths.get(id(parameter), len(layers)) <= index for parameter in parameters]
        assert [gradient is not None for gradient in gradients] == expected


def test_remapping_moves_rows_and_averages_for_new_ones(model, texts):
    tokens, lengths = texts
    before = states(model, texts)
    old = {key: value.clone() for key, value in model.state_dict().items()}
    order = torch.randperm(VOCABULARY)
    rows = torch.cat([order, torch.tensor([-1])])
    model.remap_vocabulary(rows)
    assert model.config.vocabulary == VOCABULARY + 1
    moved = torch.empty_like(order)
    moved[order] = torch.arange(VOCABULARY)
    torch.testing.assert_close(states(model, (moved[tokens], lengths)), before)
    for key, value in model.state_dict().items():
        if value.shape != old[key].shape:
            torch.testing.assert_close(value[-1], old[key].mean(0))
            assert torch.equal(value[:-1], old[key][order])


def test_the_output_bias_starts_at_the_unigram_entropy(model, name, batch_of):
    frequencies = torch.rand(VOCABULARY).square()
    frequencies /= frequencies.sum()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.set_output_bias(frequencies.log())
    if FAMILIES[name].objective == "static":
        # Static vectors have no output bias.
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        return
    batch = batch_of(name)
    targets = torch.cat([value.flatten() for key, value in batch.items() if key.endswith("targets")])
    total, count = model.eval().losses(batch).sums["tokens"]
    assert float(total) / int(count) == pytest.approx(float(-frequencies.log()[targets].mean()), abs=0.25)


def test_dropout_can_be_turned_off_and_on(build, name, texts):
    settings = {key: 0.3 for key in FAMILIES[name].config.model_fields if key.startswith("dropout")}
    model = build(**settings)
    quiet = states(model, texts)[-1]
    model.train()
    assert torch.allclose(model.hidden_states(*texts)[-1], quiet) == (not settings)
    model.set_dropout(0)
    torch.testing.assert_close(model.hidden_states(*texts)[-1], quiet)


def test_special_tokens_surround_the_text(model, name):
    pieces = [7, 8, 9]
    tokens = model.special_tokens(pieces)
    at = tokens.index(7)
    assert tokens[at : at + 3] == pieces
    around = tokens[:at] + tokens[at + 3 :]
    # Static vectors need no special pieces, but an empty text must have one.
    assert around or (FAMILIES[name].objective == "static" and model.special_tokens([]))
    assert all(0 < token < len(SPECIAL_PIECES) for token in [*around, *model.special_tokens([])])
    assert model.max_tokens is None or model.max_tokens > len(tokens)


def test_presets_fit_the_config(name):
    """Those of published sizes are built below and in tests/interchange."""
    for sizes in FAMILIES[name].presets.values():
        assert FAMILIES[name].config(vocabulary=100, **sizes).vocabulary == 100


# Numbers of parameters of the published sizes.


@pytest.mark.parametrize(
    ("family", "preset", "vocabulary", "parameters"),
    [
        # Merity et al. 2017, tables 1 and 2: 24 and 33 million; WikiText-103 with the words of Howard and Ruder 2018.
        ("ulmfit", "awd-lstm", 10_000, 24_210_800),
        ("ulmfit", "awd-lstm", 33_278, 33_545_278),
        ("ulmfit", "awd-lstm-wt103", 60_000, 44_260_800),
        # Dai et al. 2019, tables 1, 2 and 4: 151, 257, 41 and 277 million; the released weights for WikiText-103.
        ("transformer-xl", "wt103-base", 267_735, 151_107_538),
        ("transformer-xl", "wt103-large", 267_735, 256_871_242),
        ("transformer-xl", "enwik8-12", 204, 41_055_436),
        ("transformer-xl", "enwik8-24", 204, 277_278_924),
        ("transformer-xl", "wt103-large-18", 267_735, 284_156_746),
        # 13.6, 28.0 and 93.6 million without the softmax.
        ("elmo", "elmo-small", 100, 13_593_344 + 100 * 129),
        ("elmo", "elmo-medium", 100, 28_027_776 + 100 * 257),
        ("elmo", "elmo-original", 100, 93_600_896 + 100 * 513),
        # Two models of the size of flair's news-forward, whose LSTM has a second bias.
        ("flair", "flair", 275, 2 * 18_195_583),
        # Vaswani et al. 2017, table 3: 65 and 213 million with about 37,000 pieces.
        ("transformer", "base", 37_000, 63_119_496),
        ("transformer", "big", 37_000, 214_282_376),
        # Warner et al. 2024, table 4: 149 and 395 million.
        ("modernbert", "base", 50_368, 149_655_232),
        ("modernbert", "large", 50_368, 395_881_664),
        # Encoder: two layers with 4 gates of 300 in two directions.
        ("cove", "cove", 100, 8 * 300 * (600 + 1) + 8 * 300 * (900 + 1) + 7_686_100),
    ],
)
def test_published_sizes(family, preset, vocabulary, parameters):
    with torch.device("meta"):
        model = build_model(family, vocabulary=vocabulary, preset=preset)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


# The table of families: every entry is valid, and imported only when it is used.


CODE = """
import sys
import components.models.encoder, components.interchange.huggingface
print(*(name for name in sys.modules if name.startswith("components.")))
"""


def test_the_tables_import_no_family():
    loaded = set(python("-c", CODE).split())
    modules = {entry.partition(":")[0] for table in (FAMILIES, CONVERTERS) for entry in table._entries.values()}
    assert {"components.models", "components.interchange.huggingface"} <= loaded
    assert not loaded & modules


def test_losses_are_counted_and_detached_and_every_parameter_learns(model, name, batch_of):
    result = model.losses(batch_of(name))
    result.loss.backward()
    assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []
    total, count = result.sums["tokens"]
    assert int(count) > 0 and not total.requires_grad
    assert all(part.shape[0] == ROWS and not part.requires_grad for part in result.carry)
