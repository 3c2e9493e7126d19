"""RoBERTa: BERT's encoder with masked pieces as the only objective, on full rows of text with dynamic masking.

Liu et al. 2019 (RoBERTa: A Robustly Optimized BERT Pretraining Approach), sections 4.1 (dynamic masking), 4.2 (full
sentences without next-sentence prediction) and 4.4 (byte-level pieces); no segments.

    x = LN(E_token + E_position)      per block as in BERT      p(piece) = softmax(E_token LN(gelu(W x)) + b)

Shape suffixes: B batch rows, T positions, M masked positions per row.
"""

from torch import nn

from components.models.base import ModelFamily
from components.models.layers.masked import MaskedConfig, MaskedModel
from components.models.layers.transformer import Block
from components.tokenization.special import END


class RoBERTaConfig(MaskedConfig):
    """Keys of `MaskedConfig`; the default of `norm_eps` is the one of the published models."""

    norm_eps: float = 1e-5


class RoBERTa(MaskedModel):
    config: RoBERTaConfig

    def __init__(self, config: RoBERTaConfig) -> None:
        super().__init__(config, embedding=config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.initialise()

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        # Two ENDs between the texts (fairseq's RobertaHubInterface.encode), and no segments.
        pieces = self.special_tokens([*first, END, END, *second])
        return pieces, [0] * len(pieces)


FAMILY = ModelFamily(
    name="roberta",
    config=RoBERTaConfig,
    build=RoBERTa,
    objective="masked",
    sampler="full_sentences",
    tokenizers=("bpe", "wordpiece", "unigram"),
    tiny={"width": 32, "layers": 2, "heads": 2, "positions": 24, "whole_words": True},
    presets={
        # Liu et al. 2019, table 9.
        "base": {"layers": 12, "width": 768, "heads": 12},
        "large": {"layers": 24, "width": 1024, "heads": 16},
    },
)
