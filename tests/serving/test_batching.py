"""Batches of the server: long rows of one request do not hold up the others, and nobody computes for a request that
has timed out."""

import asyncio
from typing import Any

import pytest

from components.data.tasks.data import Fields
from components.serving import batching
from components.serving.batching import BATCH_CHARACTERS, Batcher

LONG = "x" * (2 * BATCH_CHARACTERS)


class Model:
    """A model whose answers are the lengths of the texts, and the batches that it computed."""

    quick = False

    def __init__(self) -> None:
        self.classifier = self
        self.batches: list[list[int]] = []


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    def answers(classifier: Model, rows: list[Fields]) -> list[dict[str, Any]]:
        classifier.batches.append([len(text) for (text,) in rows])
        return [{"length": len(text)} for (text,) in rows]

    monkeypatch.setattr(batching, "predict_rows", answers)
    return Model()


def serve(model: Model, *requests: list[str]) -> list[Any]:
    async def run() -> list[Any]:
        batcher = Batcher(batch_rows=64, queue_rows=1000)
        try:
            waiting = [batcher.predict([(text,) for text in texts], lambda: model, seconds=30.0) for texts in requests]
            return await asyncio.gather(*waiting, return_exceptions=True)
        finally:
            batcher.stop()

    return asyncio.run(run())


def test_a_request_of_long_rows_takes_turns_with_others(model):
    long, short = serve(model, [LONG] * 5, ["short", "text"])
    assert [answer["length"] for answer in long[1]] == [len(LONG)] * 5
    assert [answer["length"] for answer in short[1]] == [5, 4]
    # One long row, then the other request, which may share its batch with no long row.
    assert model.batches[:2] == [[len(LONG)], [5, 4]]


def test_a_batch_has_at_most_so_many_characters(model):
    serve(model, ["x" * (BATCH_CHARACTERS // 3)] * 7)
    assert [len(batch) for batch in model.batches] == [3, 3, 1]


def test_a_request_that_timed_out_is_not_computed_further(model):
    async def run() -> int:
        batcher = Batcher(batch_rows=64, queue_rows=1000)
        with pytest.raises(TimeoutError):
            await batcher.predict([(LONG,)] * 1000, lambda: model, seconds=0.0)
        await batcher.predict([("short",)], lambda: model, seconds=30.0)
        batcher.stop()
        return batcher.waiting_rows

    assert asyncio.run(run()) == 0 and len(model.batches) < 100
