"""The Transformer: states and losses against torch.nn.Transformer, greedy decoding, padding, settings."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.core.errors import ConfigError
from components.models.encoder import build_model
from components.models.layers.linear import LayerNorm, Linear
from components.models.layers.transformer import DecoderBlock
from components.models.transformer import Transformer
from components.tokenization.special import END, START
from components.training.pretraining.translation import TranslationSampler
from tests.models.peers import wild_model
from tests.training.helpers import PAIRS, PairStore

VOCABULARY, WIDTH, HEADS, LAYERS = 20, 16, 2, 2


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    sizes = {"width": WIDTH, "heads": HEADS, "layers": LAYERS, "positions": 12, "norm_eps": 1e-5}
    built = wild_model("transformer", vocabulary=VOCABULARY, **sizes)
    for module in built.modules():
        if isinstance(module, LayerNorm):
            # Outputs depend more on the source.
            nn.init.ones_(module.weight)
    return built


def copy(ours: Linear | LayerNorm, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def copy_attention(ours: list[Linear], output: Linear, theirs: nn.MultiheadAttention) -> None:
    """`ours`: the projections of queries, keys and values, in this order."""
    theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in ours]))
    theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in ours]))
    copy(output, theirs.out_proj)


@torch.no_grad()
def peer_of(model: Transformer) -> nn.Transformer:
    """torch's model with the same weights; the one of `nn.Transformer` itself has further norms at the end."""
    sizes = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 4 * WIDTH, "dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), LAYERS, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), LAYERS)
    # It initialises the weights, so it is made before they are copied.
    peer = nn.Transformer(d_model=WIDTH, nhead=HEADS, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for ours, theirs in zip([*model.blocks, *model.decoder], [*encoder.layers, *decoder.layers], strict=True):
        copy_attention([ours.attention.query_key_value], ours.attention.output, theirs.self_attn)
        copy(ours.attention_norm, theirs.norm1)
        if isinstance(ours, DecoderBlock):
            copy_attention([ours.cross.query, ours.cross.key_value], ours.cross.output, theirs.multihead_attn)
            copy(ours.cross_norm, theirs.norm2)
        copy(ours.expand, theirs.linear1)
        copy(ours.contract, theirs.linear2)
        copy(ours.norm, theirs.norm3 if isinstance(ours, DecoderBlock) else theirs.norm2)
    return peer.eval()


def embedded(model: Transformer, ids: list[int]) -> Tensor:
    """(1, T, D): sqrt(D) E[w] + [sin(t / 10000^(2i/D)); cos(...)]."""
    angles = torch.tensor([[place / 10000 ** (i / 8) for i in range(8)] for place in range(len(ids))])
    return (4 * model.embedding[ids] + torch.cat([angles.sin(), angles.cos()], 1)).unsqueeze(0)


def logits(model: Transformer, peer: nn.Transformer, source: list[int], words: list[int]) -> Tensor:
    """(U + 1, V) of the words of a translation after START and `words`."""
    mask = nn.Transformer.generate_square_subsequent_mask(1 + len(words))
    outputs = peer(embedded(model, source), embedded(model, [START, *words]), tgt_mask=mask)
    return F.linear(outputs[0], model.embedding, model.bias)


@torch.no_grad()
def test_losses_and_states_equal_those_of_torch(model):
    peer = peer_of(model)
    batch = TranslationSampler(PairStore(PAIRS), batch_size=4, window=9, seed=0, vocabulary=VOCABULARY).batch(0)
    assert (batch["tokens"] == 0).any() and (batch["decoder_tokens"] == 0).any(), "padding has no influence"
    losses = model.losses(batch)
    expected = 0.0
    for source, target in PAIRS:
        scores = logits(model, peer, [*source, END], target)
        expected += float(F.cross_entropy(scores, torch.tensor([*target, END]), reduction="sum"))
    total, count = losses.sums["tokens"]
    assert int(count) == 13
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert float(losses.loss) == pytest.approx(expected / 13, rel=1e-5)
    _, *layers = model.hidden_states(batch["tokens"], batch["lengths"])
    for row, length in enumerate(batch["lengths"].tolist()):
        x = embedded(model, batch["tokens"][row, :length].tolist())
        for states, layer in zip(layers, peer.encoder.layers, strict=True):
            x = layer(x)
            torch.testing.assert_close(states[row, :length], x[0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_greedy_translation_takes_the_most_likely_next_word(model):
    """With cached keys and values, of sources of different lengths, as without."""
    peer = peer_of(model)
    tokens, lengths = torch.tensor([[7, 8, 9, END], [5, END, 0, 0], [9, 9, END, 0]]), torch.tensor([4, 2, 3])
    # One of the translations ends early.
    model.bias[END] = 3.0
    actual = model.translate(tokens, lengths, most=6)
    ends = set()
    for row, length in enumerate(lengths.tolist()):
        words: list[int] = []
        while len(words) < 6 and END not in words:
            words.append(int(logits(model, peer, tokens[row, :length].tolist(), words)[-1].argmax()))
        ends.add(len(words))
        assert actual[row].tolist() == words + [END] * (actual.shape[1] - len(words))
    assert ends == {3, 6}


def test_texts_and_translations_end_with_the_positions(model):
    long = torch.full((1, 13), 7)
    with pytest.raises(ConfigError, match="a text of 13 pieces is longer than the model's 12 positions"):
        model.translate(long, torch.tensor([13]))
    with torch.no_grad():
        model.bias[7] = 1000.0
    assert model.translate(long[:, :12], torch.tensor([12])).tolist() == [[7] * 12]
    with pytest.raises(ConfigError, match="a text of 13 pieces"):
        model.decode(long, model.read(long[:, :2], torch.tensor([2])))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 15, "heads": 3}, "width 15 is odd; sines and cosines of the positions have half of it each"),
        ({"width": 16, "heads": 3}, "width 16 is not a multiple of heads 3"),
        ({"activation": "tanh"}, "model.activation: .* 'relu'"),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        build_model("transformer", vocabulary=20, settings=settings)
