"""CoVe: contextual word vectors from the encoder of a translation model.

McCann, Bradbury, Xiong and Socher 2017 (Learned in Translation: Contextualized Word Vectors), sections 3 and 4:

    H = biLSTM(E[w^x])                                   encoder; CoVe(w) = H, used as [E[w]; CoVe(w)], E GloVe
    h_t = LSTM([z_{t-1}; h~_{t-1}], h_{t-1})             decoder, z the word vectors of the translation
    alpha_t = softmax(H (W_1 h_t + b_1))                 h~_t = tanh(W_2 [H^T alpha_t; h_t] + b_2)
    p(w^z_t) = softmax(W_out h~_t + b_out)

The decoder's layers are initialised with the last states of the encoder's layers; their cells and h~ with zero. Source
and target have separate tables over one vocabulary.

Shape suffixes: B batch rows, T source positions, U target positions, D width of the word vectors, H width of the
encoder's and the decoder's states, G = 4 H gates.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import ModelConfig, ModelFamily, Rate, Size, at_columns
from components.models.layers.dropout import Dropout
from components.models.layers.linear import Linear, compute_dtype
from components.models.layers.lstm import BiLSTM, cell
from components.models.translation import Memory, State, TranslationModel


class CoVeConfig(ModelConfig):
    """Sizes of the translation model.

    Attributes:
        embedding: width of the word vectors of source and target.
        hidden: width of the encoder in each direction; decoder and context vectors have twice this width.
        layers: number of LSTM layers in the encoder and in the decoder.
        dropout: rate on the word vectors, on every layer's output and on h~ before the output layer.
        fixed_words: whether the source's word vectors stay as they are while translation is learned, as GloVe vectors
        do
            in the paper (section 3.3).
    """

    embedding: Size = 200
    hidden: Size = 128
    layers: Size = 2
    dropout: Rate = 0.1
    fixed_words: bool = False


class Decoder(nn.Module):
    """LSTM layers with input feeding and global attention. The state is h and c of every layer, then h~."""

    def __init__(self, config: CoVeConfig) -> None:
        super().__init__()
        width = 2 * config.hidden
        # torch.compile would recompile the loop for every length. It is disabled here and not at module level, because
        # `disable` loads the compiler, which takes a second in every stage.
        self._unroll = torch.compiler.disable(_unrolled)
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.embedding))
        # Input of the first layer: the word (`word`, one product for all steps) and [h~; h]; of the others: [h of the
        # layer below; h]. The first layer's bias is in `word`.
        self.word = Linear(config.embedding, 4 * width)
        self.cells = nn.ModuleList(Linear(2 * width, 4 * width, bias=layer > 0) for layer in range(config.layers))
        self.query = Linear(width, width)
        self.mix = Linear(2 * width, width)
        self.drop = Dropout(config.dropout)
        bound = width**-0.5
        nn.init.normal_(self.embedding, std=0.1)
        for linear in (self.word, *self.cells):
            nn.init.uniform_(linear.weight, -bound, bound)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
                # Forget bias 1, as in `layers.lstm`.
                nn.init.ones_(linear.bias[width : 2 * width])

    def start(self, lasts: list[Tensor]) -> State:
        """The state before the first word, from the encoder's last states, (B, H) per layer."""
        zeros_BH = torch.zeros_like(lasts[0])
        return (*[part for last_BH in lasts for part in (last_BH, zeros_BH)], zeros_BH)

    def attend(self, h_BH: Tensor, memory_BTH: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Context (B, H) and attention weights (B, T), 0 where the mask is False."""
        scores_BT = (memory_BTH @ self.query(h_BH).unsqueeze(-1)).squeeze(-1)
        weights_BT = scores_BT.float().masked_fill(~mask_BT, float("-inf")).softmax(-1).to(memory_BTH.dtype)
        return (weights_BT.unsqueeze(1) @ memory_BTH).squeeze(1), weights_BT

    def gates(self, tokens: Tensor) -> Tensor:
        """The words' part of the first layer's pre-activation gates, (..., G)."""
        return self.word(self.drop(F.embedding(tokens, self.embedding)))

    def step(self, word_BG: Tensor, state: State, memory_BTH: Tensor, mask_BT: Tensor) -> tuple[Tensor, State]:
        """One step: returns h~ (B, H), from which the next word is predicted, and the state after it."""
        *layers, x_BH = state
        after: list[Tensor] = []
        for index, linear in enumerate(self.cells):
            h_BH, c_BH = layers[2 * index : 2 * index + 2]
            gates_BG = linear(torch.cat([x_BH, h_BH], dim=-1))
            h_BH, c_BH = cell(gates_BG if index else gates_BG + word_BG, c_BH)
            after += h_BH, c_BH
            x_BH = self.drop(h_BH)
        context_BH, _ = self.attend(x_BH, memory_BTH, mask_BT)
        mixed_BH = torch.tanh(self.mix(torch.cat([context_BH, x_BH], dim=-1)))
        return mixed_BH, (*after, mixed_BH)

    def forward(self, tokens_BU: Tensor, state: State, memory_BTH: Tensor, mask_BT: Tensor) -> tuple[Tensor, State]:
        """h~ (B, U, H) under teacher forcing, and the state at the end."""
        return self._unroll(self, tokens_BU, state, memory_BTH, mask_BT)


def _unrolled(
    decoder: Decoder, tokens_BU: Tensor, state: State, memory_BTH: Tensor, mask_BT: Tensor
) -> tuple[Tensor, State]:
    outputs = []
    for word_BG in decoder.gates(tokens_BU).unbind(1):
        mixed_BH, state = decoder.step(word_BG, state, memory_BTH, mask_BT)
        outputs.append(mixed_BH)
    return torch.stack(outputs, dim=1), state


class CoVe(TranslationModel):
    """The translation model of LSTMs. `hidden_states` are the word vectors (B, T, D) and, for each layer, [word
    vectors; states] (B, T, D + H); the last is [E[w]; CoVe(w)]."""

    config: CoVeConfig
    carries_state = True
    piece_parameters = ("embedding", "decoder.embedding", "output", "bias")

    def __init__(self, config: CoVeConfig) -> None:
        super().__init__()
        self.config = config
        width = 2 * config.hidden
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.embedding))
        self.layers = nn.ModuleList(
            BiLSTM(width if layer else config.embedding, config.hidden) for layer in range(config.layers)
        )
        self.decoder = Decoder(config)
        self.output = nn.Parameter(torch.empty(config.vocabulary, width))
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.drop = Dropout(config.dropout)
        # With small output rows the bias (log frequencies of the target's words) determines the first predictions.
        nn.init.normal_(self.embedding, std=0.1)
        nn.init.normal_(self.output, std=0.1 / width**0.5)

    def read(self, tokens: Tensor, lengths: Tensor) -> Memory:
        """The top layer's states (B, T, H), each layer's last states (B, H), and the mask (B, T) of the former."""
        _, *layers = self._encode(tokens, lengths, fixed_words=self.config.fixed_words)
        rows, half = torch.arange(len(tokens), device=tokens.device), self.config.hidden
        lasts = (
            torch.cat([states_BTH[rows, lengths - 1, :half], states_BTH[:, 0, half:]], dim=-1) for states_BTH in layers
        )
        mask_BT = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
        return layers[-1], *lasts, mask_BT

    def decode(self, tokens: Tensor, memory: Memory, state: State = ()) -> tuple[Tensor, State]:
        memory_BTH, *lasts, mask_BT = memory
        mixed_BUH, state = self.decoder(tokens, state or self.decoder.start(lasts), memory_BTH, mask_BT)
        return self.drop(mixed_BUH), state

    def output_table(self) -> nn.Parameter:
        return self.output

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        words_BTD, *layers = self._encode(tokens, lengths)
        return [words_BTD, *(torch.cat([words_BTD, states_BTH], dim=-1) for states_BTH in layers)]

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        # The mean of the word vectors, and each direction after it has read everything.
        width = self.config.embedding
        mask_BT1 = (torch.arange(hidden.shape[1], device=hidden.device) < lengths.unsqueeze(1)).unsqueeze(-1)
        words_BD = (hidden[..., :width] * mask_BT1).sum(1) / lengths.unsqueeze(1)
        ahead_BTH, back_BTH = hidden[..., width:].chunk(2, dim=-1)
        rows = torch.arange(hidden.shape[0], device=hidden.device)
        return torch.cat([words_BD.to(hidden.dtype), ahead_BTH[rows, lengths - 1], back_BTH[:, 0]], dim=-1)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        # The first piece's word vector, and each direction after it has read the whole unit.
        width, half = self.config.embedding, (hidden.shape[-1] - self.config.embedding) // 2
        words_BTD, ahead_BTH, back_BTH = hidden.split([width, half, half], dim=-1)
        first_BU, last_BU = units.unbind(-1)
        return torch.cat(
            [at_columns(words_BTD, first_BU), at_columns(ahead_BTH, last_BU), at_columns(back_BTH, first_BU)], dim=-1
        )

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.embedding], *(list(layer.parameters()) for layer in self.layers)]

    def piece_embedding(self) -> nn.Parameter:
        return self.embedding

    def _encode(self, tokens: Tensor, lengths: Tensor, *, fixed_words: bool = False) -> list[Tensor]:
        x_BTD = F.embedding(tokens, self.embedding.detach() if fixed_words else self.embedding)
        outputs = [self.drop(x_BTD.to(compute_dtype(x_BTD)))]
        for layer in self.layers:
            outputs.append(self.drop(layer(outputs[-1], self.texts(lengths))))
        return outputs


FAMILY = ModelFamily(
    name="cove",
    config=CoVeConfig,
    build=CoVe,
    objective="translation",
    sampler="translation",
    tokenizers=("word", "wordpiece"),
    tiny={"embedding": 32, "hidden": 24, "dropout": 0.1},
    presets={
        # McCann et al. 2017, section 3.3: GloVe vectors of width 300, 300 per direction, two layers, dropout 0.2. The
        # vectors are fixed there: `pretrain.<name>.vectors`, with `fixed_words: true`.
        "cove": {"embedding": 300, "hidden": 300, "layers": 2, "dropout": 0.2}
    },
)
