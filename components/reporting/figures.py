"""Figures as SVG text, drawn for a column as narrow as a phone's screen.

Every function takes plain numbers and returns one `<svg>` element. The same numbers give the same bytes: no date, no
random ids.
"""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

# Okabe and Ito (2008): eight colours that people with colour-blindness can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
INK = "#1b1f24"
#: Characters of a name beside which a second column of a legend still has room.
LONG_NAME = 19
#: Characters of a name beside an axis: what is longer leaves no room for the figure.
LONGEST_NAME = 36
#: Pixels between a point and its name, and between two ticks' labels.
GAP = 5.0
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
}


@dataclass(frozen=True)
class Line:
    """A curve; `low` and `high` bound an interval around it, `dashed` marks a reference."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dashed: bool = False


@dataclass(frozen=True)
class Cloud:
    """Points of one colour; `names` are written beside them, `background` marks what only shows where the rest is."""

    x: Sequence[float]
    y: Sequence[float]
    names: Sequence[str] = ()
    background: bool = False


def lines(
    series: Mapping[str, Line],
    *,
    x_label: str,
    y_label: str,
    logarithmic: bool = False,
    ticks: bool = False,
    names: Mapping[float, str] | None = None,
    among: Sequence[str] = (),
) -> str:
    """Curves with their intervals; `ticks` puts a tick at every x value, for few and uneven ones (label budgets), and
    `names` writes words there instead of the values. A curve has its colour by its place `among` all that the figures
    of a chapter show, so that it keeps it where others are missing."""
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
                label=name,
                color=colour,
                linestyle="--" if line.dashed else dashes,
                marker="o" if ticks else None,
                markersize=4,
                linewidth=1.8,
            )
            # More bands than colours only hide each other.
            if line.low is not None and line.high is not None and len(series) <= len(COLOURS):
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
        if logarithmic:
            axes.set_xscale("log")
        if ticks:
            values = sorted({value for line in series.values() for value in line.x})
            if names is None:
                axes.set_xticks(values, [f"{value:.0f}" for value in values])
            else:
                axes.set_xticks(values, [names[value] for value in values], rotation=30, ha="right")
            axes.minorticks_off()
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18 if names is None else -0.42), ncols=columns)
        if ticks and names is None:
            _thin(figure, axes)
        return _svg(figure)


def points(places: Mapping[str, tuple[float, float]], *, x_label: str, y_label: str) -> str:
    """Named points (x, y), each with its name beside it, or at the end of a line where others stand too near."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _canvas(height=3.4)
        for (x, y), colour in zip(places.values(), itertools.cycle(COLOURS), strict=False):
            axes.scatter([x], [y], color=colour, s=36)
        axes.margins(x=0.25, y=0.15)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        named = [(name, x, y, INK) for name, (x, y) in places.items()]
        _beside(figure, axes, named, size=9, rings=16)
        return _svg(figure)


def scatter(groups: Mapping[str, Cloud], *, x_label: str = "", y_label: str = "") -> str:
    """Clouds of points, the first one behind the others; each its colour, grey the ones that are only background. Names
    are left out where there is no room for them, those that come first in their clouds last of all."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _canvas(height=4.2)
        colours = itertools.cycle(COLOURS[:-1])
        named: list[tuple[int, str, float, float, str]] = []
        for name, cloud in groups.items():
            colour = COLOURS[-1] if cloud.background else next(colours)
            size = 8 if cloud.background else 20
            axes.scatter(cloud.x, cloud.y, s=size, color=colour, alpha=0.4 if cloud.background else 0.85, label=name)
            texts = zip(cloud.names, cloud.x, cloud.y, strict=False)
            named += [(place, text, x, y, colour) for place, (text, x, y) in enumerate(texts)]
        axes.margins(x=0.1)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3 if max(map(len, groups)) <= LONG_NAME else 2
        )
        first = sorted(named, key=lambda entry: entry[0])
        _beside(figure, axes, [entry[1:] for entry in first], size=6.5, rings=2)
        return _svg(figure)


def bars(values: Mapping[str, float], *, x_label: str, form: str = "{:,.0f}") -> str:
    """Horizontal bars with their value (written as `form` says) at the end, first entry on top."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _canvas(height=0.7 + 0.36 * len(values))
        names = list(values)[::-1]
        drawn = axes.barh(range(len(names)), [values[name] for name in names], color=COLOURS[0], height=0.6)
        axes.set_yticks(range(len(names)), list(map(_short, names)))
        axes.bar_label(drawn, fmt=form, padding=3, fontsize=9)
        axes.margins(x=0.18)
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_xlabel(x_label)
        return _svg(figure)


def ranges(
    entries: Mapping[str, tuple[float, float, float | None]],
    *,
    x_label: str,
    reference: float,
    logarithmic: bool = False,
) -> str:
    """Named means with their bounds (mean, low, high), first entry on top, beside a line at `reference`. A bound that
    is None lies beyond what was measured: an arrow."""
    with matplotlib.rc_context(STYLE):
        figure, axes = _canvas(height=0.9 + 0.3 * len(entries), width=5.2)
        axes.axvline(reference, color="0.6", linewidth=1)
        known = [value for entry in entries.values() for value in entry if value is not None]
        edge = max([*known, reference]) * (2 if logarithmic else 1.1)
        names = list(entries)[::-1]
        for row, name in enumerate(names):
            mean, low, high = entries[name]
            axes.plot([low, edge if high is None else high], [row, row], color=COLOURS[0], linewidth=1.8)
            axes.plot([mean], [row], marker="o", color=COLOURS[0], markersize=5)
            if high is None:
                axes.plot([edge], [row], marker=">", color=COLOURS[0], markersize=6)
        axes.set_yticks(range(len(names)), list(map(_short, names)))
        axes.set_ylim(-0.6, len(entries) - 0.4)
        if logarithmic:
            axes.set_xscale("log")
            least = min([*known, reference])
            ticks = [digit * 10.0**power for power in range(-3, 7) for digit in (1, 2, 5)]
            ticks = [tick for tick in ticks if least / 2 <= tick <= 2 * edge]
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        axes.set_xlabel(x_label)
        return _svg(figure)


def confusion(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    """Rows are the true labels, columns the predicted ones; the shade is the share of the row."""
    counts = np.asarray(matrix, dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with matplotlib.rc_context(STYLE):
        size = min(9.0, 1.6 + 0.34 * len(labels))
        figure, axes = _canvas(height=size, width=max(4.2, size))
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(labels)), labels, rotation=90)
        axes.set_yticks(range(len(labels)), labels)
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


def calibration(series: Mapping[str, Line], *, among: Sequence[str] = ()) -> str:
    """Accuracy against confidence; on the diagonal a model is as right as it says. `among` as in `lines`."""
    diagonal = Line(x=[0, 1], y=[0, 1], dashed=True)
    return lines({**series, "perfect": diagonal}, x_label="confidence", y_label="share that is right", among=among)


def lineage(layers: Sequence[Sequence[tuple[str, str, str]]], edges: Sequence[tuple[str, str]]) -> str:
    """Boxes in rows from the raw data (top) to the classifier (bottom).

    Args:
        layers: rows of (key, title, small print); every key is drawn once.
        edges: (key of the source, key of what was made from it).
    """
    with matplotlib.rc_context(STYLE):
        widest = max(len(layer) for layer in layers)
        figure, axes = _canvas(height=1.05 * len(layers), width=max(4.2, 1.9 * widest))
        axes.axis("off")
        place = {
            key: ((column + 0.5) / len(layer), -row)
            for row, layer in enumerate(layers)
            for column, (key, _, _) in enumerate(layer)
        }
        for source, target in edges:
            arrow = {"arrowstyle": "-|>", "color": "#8a929b", "shrinkA": 18, "shrinkB": 18}
            axes.annotate("", xy=place[target], xytext=place[source], arrowprops=arrow)
        box = {"boxstyle": "round,pad=0.45", "facecolor": "#eef4fa", "edgecolor": COLOURS[0]}
        for layer in layers:
            for key, title, small in layer:
                text = "\n".join([title, *textwrap.wrap(small, 26)])
                axes.text(*place[key], text, ha="center", va="center", fontsize=8, bbox=box, color=INK)
        axes.set_xlim(0, 1)
        axes.set_ylim(-len(layers) + 0.4, 0.5)
        return _svg(figure)


def _short(name: str) -> str:
    """What is too long without its middle: names of one kind often begin alike."""
    if len(name) <= LONGEST_NAME:
        return name
    behind = LONGEST_NAME // 3
    return f"{name[: LONGEST_NAME - behind - 1]}\u2026{name[-behind:]}"


def _thin(figure: Figure, axes: Axes) -> None:
    """Leave out the labels of ticks that would run into others; the first and the last one stay."""
    figure.draw_without_rendering()
    labels = [label for label in axes.get_xticklabels() if label.get_text()]
    taken: list[Bbox] = []
    for label in [*labels[:1], *labels[:0:-1][:1], *labels[1:-1]]:
        box = label.get_window_extent()
        if any(box.x0 < other.x1 + GAP and other.x0 < box.x1 + GAP for other in taken):
            label.set_visible(False)
        else:
            taken.append(box)


def _beside(
    figure: Figure, axes: Axes, named: Sequence[tuple[str, float, float, str]], *, size: float, rings: int
) -> None:
    """Write (name, x, y, colour) beside their points, where nothing was written yet and within the axes.

    Places are tried around the point, then further above and below it, `rings` times; those away from it get a line to
    it. A name that finds none is left out.
    """
    figure.draw_without_rendering()
    frame = axes.get_window_extent()
    marks = [axes.transData.transform((x, y)) for _, x, y, _ in named]
    # Each point takes the room that it is drawn in.
    points_at = [Bbox.from_extents(x - GAP / 2, y - GAP / 2, x + GAP / 2, y + GAP / 2) for x, y in marks]
    taken: list[Bbox] = []
    to_points = 72 / figure.dpi
    for (name, x, y, colour), (left, bottom) in zip(named, marks, strict=True):
        text = axes.annotate(name, (x, y), textcoords="offset points", xytext=(0, 0), fontsize=size, color=colour)
        # What is written within the axes changes nothing of their place.
        text.set_in_layout(False)
        box = text.get_window_extent()
        for ring, across, up in _around(box.width, box.height, rings=rings):
            place = Bbox.from_bounds(left + across, bottom + up, box.width, box.height)
            inside = frame.x0 <= place.x0 and place.x1 <= frame.x1 and frame.y0 <= place.y0 and place.y1 <= frame.y1
            if not inside or place.count_overlaps([*taken, *points_at]):
                continue
            taken.append(place)
            text.set_position((across * to_points, up * to_points))
            if ring:
                end = (
                    max(across, min(0.0, across + box.width)) * to_points,
                    (up if up > 0 else up + box.height) * to_points,
                )
                line = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
                axes.annotate("", (x, y), textcoords="offset points", xytext=end, arrowprops=line).set_in_layout(False)
            break
        else:
            text.remove()


def _around(width: float, height: float, *, rings: int) -> Iterator[tuple[int, float, float]]:
    """Places for a text around a point, the nearest first: ring, and how far its lower left corner is away."""
    for ring in range(rings):
        away = GAP / 2 + ring * height
        for across in (GAP, -GAP - width, -width / 2):
            for up in (away, -away - height):
                yield ring, across, up


def _canvas(*, height: float, width: float = 4.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    # Which knows how wide a text is.
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    # The size comes from the page: as wide as its column, never wider than drawn.
    width = figure.get_figwidth() * 96
    return svg.replace("<svg ", f'<svg role="img" style="width:100%;max-width:{width:.0f}px;height:auto" ', 1)
