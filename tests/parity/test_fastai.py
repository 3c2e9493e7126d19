"""ULMFiT's language model gives what fastai's AWD_LSTM gives with the same weights."""

import numpy as np
import torch

from components.interchange.words import MARKS, read_fastai
from components.models.encoder import build_model

WORDS = ["xxunk", "xxpad", "xxbos", "the", "film", "was", "good", "."]


def test_states_loss_and_gradients(reference, tmp_path):
    # No padding, whose gradient fastai drops.
    stream = np.random.default_rng(0).choice([0, 2, 3, 4, 5, 6, 7], size=(3, 13))
    sizes = {"emb_sz": 6, "n_hid": 10, "n_layers": 3}
    actual = reference(
        "fastai", "language_model", folder=str(tmp_path), words=WORDS, sizes=sizes, stream=stream.tolist()
    )
    read = read_fastai(tmp_path / "model.pth", tmp_path / "words.json")
    model = build_model(
        "ulmfit", vocabulary=len(read.pieces), settings=read.settings | {"activation": 2, "slowness": 1}
    )
    model.load_state_dict(read.tensors)
    place = {piece: row for row, piece in enumerate(read.pieces)} | MARKS
    rows = [place[word] for word in WORDS]
    tokens = torch.tensor(rows)[torch.from_numpy(stream)]

    top = model.eval().hidden_states(tokens[:, :-1], torch.full((3,), 12))[-1]
    np.testing.assert_allclose(top.detach().numpy(), actual["states"], atol=1e-5)

    result = model.train().losses({"tokens": tokens[:, :-1], "targets": tokens[:, 1:]})
    total, count = result.sums["tokens"]
    # Pieces without a counterpart have a vanishing probability.
    np.testing.assert_allclose(float(total / count), float(actual["entropy"]), rtol=1e-5)
    np.testing.assert_allclose(float(result.loss.detach()), float(actual["loss"]), rtol=1e-5)
    result.loss.backward()
    np.testing.assert_allclose(model.embedding.grad[rows], actual["embedding_gradient"], atol=1e-5)
    np.testing.assert_allclose(model.lstms[0].weight_hh.grad, actual["recurrent_gradient"], atol=1e-5)
