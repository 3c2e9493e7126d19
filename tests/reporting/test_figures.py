"""Figures: names are drawn literally, and curves keep their colours."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from components.data.scoring.intervals import Interval
from components.reporting import figures
from components.reporting.figures import Line


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], str]], Figure]:
    """Returns the figure that a function of `figures` draws."""

    def of(draw: Callable[[], str]) -> Figure:
        seen: list[Figure] = []
        real = figures._svg
        monkeypatch.setattr(figures, "_svg", lambda figure: seen.append(figure) or real(figure))
        draw()
        (figure,) = seen
        figure.draw_without_rendering()
        return figure

    return of


def test_a_curve_has_the_same_colour_in_every_figure_of_a_chapter(drawn):
    curves = {name: Line(x=[0.0, 1.0], y=[0.0, 1.0]) for name in ("tfidf", "scratch", "adapted")}
    colours = {
        line.get_label(): line.get_color()
        for line in drawn(lambda: figures.lines(curves, x_label="x", y_label="y")).axes[0].lines
    }
    some = {"adapted": curves["adapted"]}
    figure = drawn(lambda: figures.lines(some, x_label="x", y_label="y", among=list(curves)))
    (result,) = figure.axes[0].lines
    assert result.get_color() == colours["adapted"] and len(set(colours.values())) == 3
    legend = figure.axes[0].get_legend()
    assert legend and [text.get_text() for text in legend.get_texts()] == ["adapted"]


DRAWINGS: dict[str, Callable[[str], str]] = {
    "lines": lambda name: figures.lines({name: Line([1], [2])}, x_label=name, y_label=name, ticks=True),
    "ranges": lambda name: figures.ranges({name: Interval(1, 0, math.inf)}, x_label="", reference=1.0),
    "confusion": lambda name: figures.confusion([[1, 2], [3, 4]], [name, "b"]),
}


@pytest.mark.parametrize("kind", DRAWINGS)
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("$_a_b$", "$_a_b$"),
        ("_a", "_a"),
        ("<a> & {b} %d \\frac", "<a> & {b} %d \\frac"),
        ("a\nb\tc", "a b c"),
        ("a\x00b\ud83d", "a\ufffdb\ufffd"),
    ],
)
def test_any_name_is_drawn_literally_as_valid_xml(kind, name, shown):
    assert shown in " ".join(ElementTree.fromstring(DRAWINGS[kind](name)).itertext())


def test_no_curve_is_grey_because_overlapping_bands_are():
    channels = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in figures.COLOURS]
    assert [max(of) - min(of) > 60 or max(of) == 0 for of in channels] == [True] * 8
