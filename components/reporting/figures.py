"""Figures as SVG text for narrow screens: functions from plain numbers to one `<svg>` element. Equal numbers give equal
bytes. Names are never parsed as mathematical notation."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator

from components.data.scoring.intervals import Interval
from components.reporting.marks import marked

# Seven colours of Okabe and Ito (2008), which remain distinguishable with colour blindness, and a brown. Grey is no
# colour of a curve, because overlapping bands are grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C510A")
INK = "#1b1f24"
#: Maximum characters per name in a legend with two columns.
LONG_NAME = 19
#: Maximum characters of a tick label on a categorical axis; longer names are abbreviated.
LONGEST_NAME = 36
#: Maximum number of steps between tick labels.
TICKS = 8
# XML cannot represent control characters and surrogates, and matplotlib cannot lay out surrogates.
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": "#8a929b",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "headstart",
    # A class name may hold dollar signs.
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Line:
    """A curve. `low` and `high` are the bounds of its interval; `dashed` marks a reference."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dashed: bool = False

    @classmethod
    def of(cls, points: Sequence[Mapping[str, float]], x: str, y: str = "mean", *, dashed: bool = False) -> Line:
        """The curve of points with these keys; with `low` and `high`, the bounds of its interval."""
        low, high = ([point[key] for point in points if key in point] for key in ("low", "high"))
        bounds = (low, high) if low != high else (None, None)
        return cls([point[x] for point in points], [point[y] for point in points], bounds[0], bounds[1], dashed)


def lines(
    series: Mapping[str, Line],
    *,
    x_label: str,
    y_label: str,
    logarithmic: bool = False,
    ticks: bool = False,
    among: Sequence[str] = (),
) -> str:
    """Curves with their intervals.

    Args:
        logarithmic: whether the horizontal axis is logarithmic; requires `ticks`.
        ticks: whether to set a tick at every x value, for few and uneven values such as label budgets.
        among: names of all curves of a chapter; a curve has the same colour in each figure of the chapter.
    """
    columns = 2 if max(map(len, series), default=0) <= LONG_NAME else 1
    with matplotlib.rc_context(STYLE):
        figure, axes = _canvas(height=2.9 + 0.2 * -(-len(series) // columns))
        styles = itertools.cycle((colour, dashes) for dashes in ("-", ":", "-.") for colour in COLOURS)
        style = dict(zip(dict.fromkeys([*among, *series]), styles, strict=False))
        for name, line in series.items():
            colour, dashes = style[name]
            axes.plot(
                line.x,
                line.y,
                label=_printable(name),
                color=colour,
                linestyle="--" if line.dashed else dashes,
                marker="o" if ticks else None,
                markersize=4,
                linewidth=1.8,
            )
            # More bands than colours would hide each other.
            if line.low is not None and line.high is not None and len(series) <= len(COLOURS):
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
        if logarithmic:
            axes.set_xscale("log")
        if ticks:
            values = sorted({value for line in series.values() for value in line.x})
            axes.xaxis.set_major_locator(FixedLocator(values, nbins=TICKS))
            axes.xaxis.set_major_formatter("{x:.0f}")
            axes.minorticks_off()
        axes.set_xlabel(_printable(x_label))
        axes.set_ylabel(_printable(y_label))
        # Without handles and labels matplotlib omits labels that begin with an underscore.
        handles = axes.get_lines()
        labels = [str(handle.get_label()) for handle in handles]
        axes.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=columns)
        return _svg(figure)


def ranges(
    entries: Mapping[str, Interval], *, x_label: str, reference: float | None = None, logarithmic: bool = False
) -> str:
    """Named estimates with a vertical line at `reference`, the first entry at the top. An infinite bound is outside the
    measured range and drawn as an arrow."""
    values = [value for of in entries.values() for value in (of.mean, of.low, of.high) if value < math.inf]
    edge = max([*values, *([] if reference is None else [reference])]) * (2 if logarithmic else 1.1)
    names = list(entries)[::-1]
    with matplotlib.rc_context(STYLE):
        figure, axes = _canvas(height=0.9 + 0.3 * len(entries), width=5.2)
        if reference is not None:
            axes.axvline(reference, color="0.6", linewidth=1)
        for row, name in enumerate(names):
            of = entries[name]
            axes.hlines(row, of.low, min(of.high, edge), color=COLOURS[0], linewidth=1.8)
            for value in (of.mean, of.high):
                if value in (of.mean, math.inf):
                    axes.plot(min(value, edge), row, ">" if value == math.inf else "o", color=COLOURS[0], markersize=5)
        axes.set_yticks(range(len(names)), list(map(_short, names)))
        axes.set_ylim(-0.6, len(entries) - 0.4)
        if logarithmic:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
        axes.set_xlabel(_printable(x_label))
        return _svg(figure)


def confusion(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    """Confusion matrix [C, C] of counts: true labels in rows, predicted ones in columns; the shade is the fraction of
    the row."""
    counts = np.asarray(matrix, dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with matplotlib.rc_context(STYLE):
        names = [_short(label) for label in labels]
        size = min(9.0, 0.8 + 0.34 * len(names)) + 0.075 * max(map(len, names))
        figure, axes = _canvas(height=size, width=max(4.2, size))
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.grid(visible=False)
        if len(labels) <= 15:
            for row, column in np.ndindex(*counts.shape):
                if counts[row, column]:
                    colour = "white" if shares[row, column] > 0.5 else INK
                    text = f"{counts[row, column]:.0f}"
                    axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        return _svg(figure)


def _short(name: str) -> str:
    """A printable name of at most `LONGEST_NAME` characters, without its middle: names often share their beginning."""
    name = _printable(name)
    if len(name) <= LONGEST_NAME:
        return name
    end = LONGEST_NAME // 3
    return f"{name[: LONGEST_NAME - end - 1]}\u2026{name[-end:]}"


def _printable(text: str) -> str:
    # Replacement characters stand for those characters that XML excludes.
    return _NOT_PRINTABLE.sub("\ufffd", str(marked(re.sub(r"\s", " ", text))))


def _canvas(*, height: float, width: float = 4.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    # The canvas measures the extents of texts.
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    # The page determines the size: the width of its column, at most the figure's own width.
    width = figure.get_figwidth() * 96
    return svg.replace("<svg ", f'<svg role="img" style="width:100%;max-width:{width:.0f}px;height:auto" ', 1)
