"""Numbers of parameters of the published sizes."""

from __future__ import annotations

import pytest
import torch

from components.models.encoder import build_model


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
        # Encoder: two layers with 4 gates of 300 in two directions.
        ("cove", "cove", 100, 8 * 300 * (600 + 1) + 8 * 300 * (900 + 1) + 7_686_100),
    ],
)
def test_published_sizes(family: str, preset: str, vocabulary: int, parameters: int) -> None:
    with torch.device("meta"):
        model = build_model(family, vocabulary=vocabulary, preset=preset)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
