"""A live line for every long step: what it does, how far it is, how fast, how long it still takes."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

LINE_SECONDS = 5.0


class _Lines:
    """A text stream that ends each update with a line break, for logs that cannot move the cursor back."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> None:
        if text := text.replace("\r", "").strip():
            self.stream.write(text + "\n")

    def flush(self) -> None:
        self.stream.flush()


class Progress:
    """`with Progress("pretrain ulmfit", total=n, unit="tok") as bar: bar.advance(2048, loss=3.2)`.

    On a terminal the line moves in place; elsewhere (a log, DVC, Prefect, Ray) a new line appears every few seconds.

    Args:
        name: what is being done.
        total: units of the whole step, None where it is not known.
        unit: what is counted (tok, doc, MB, run).
        done: units that an earlier, interrupted run already did; they count as progress but not as speed.
        rate: whether to tell units a second; not where the unit is time.
    """

    def __init__(
        self,
        name: str,
        *,
        total: float | None,
        unit: str,
        done: float = 0,
        rate: bool = True,
        stream: TextIO | None = None,
    ) -> None:
        stream = stream or sys.stderr
        live = stream.isatty()
        speed = "  {rate_fmt}{postfix}" if rate else "{postfix}"
        known = "{desc}  {percentage:3.0f}%  {n_fmt}/{total_fmt} " + unit + speed + "  {remaining} left"
        self._bar = tqdm(
            total=total,
            desc=name,
            unit=" " + unit,
            unit_scale=True,
            initial=done,
            file=stream if live else _Lines(stream),
            mininterval=0.2 if live else LINE_SECONDS,
            # 1 lets tqdm skip no update: its own guess assumes that all updates are alike.
            miniters=1,
            dynamic_ncols=live,
            bar_format=known if total is not None else "{desc}  {n_fmt} " + unit + speed,
        )

    def advance(self, amount: float = 1, **numbers: float | str) -> None:
        """Count `amount` more units; `numbers` (a loss, say) stand at the end of the line from then on."""
        if numbers:
            self._bar.set_postfix(numbers, refresh=False)
        if self._bar.total is not None:
            # Fractions that add up to a hair more than the total would leave "-00:00".
            amount = min(amount, self._bar.total - self._bar.n)
        self._bar.update(amount)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()
