"""The drawing of the lineage: coordinates of fixed graphs."""

from itertools import combinations, pairwise

import pytest

from components.pages.graph import HEIGHT, WIDTH, path_of, placed

#: Versions of a words model: each comes from a version of the data.
WORDS = [("data 1", "1"), ("data 1", "2"), ("data 2", "3"), ("data 2", "4")]
#: Two families from two corpora; two versions of earlier runs, and data that only a task reads.
TRANSFER = [
    ("data", "general"),
    ("data", "domain"),
    *((corpus, f"{of} pretrained") for of in ("ulmfit", "bert") for corpus in ("general",)),
    *((source, f"{of} adapted") for of in ("ulmfit", "bert") for source in (f"{of} pretrained", "domain")),
    *((source, f"task {of}") for of in ("ulmfit", "bert") for source in (f"{of} adapted", "labels")),
    ("task ulmfit", "version 3"),
    ("task bert", "version 4"),
    ("data", "version 1"),
    ("labels", "version 1"),
    ("data", "version 5"),
]
#: Every box with every box of each later layer.
LAYERS = [["a"], ["b", "c"], ["d", "e", "f"], ["g", "h"], ["i"]]
DENSE = [
    (source, target)
    for (number, layer), (other, later) in combinations(enumerate(LAYERS), 2)
    for source in layer
    for target in later
    if other - number in (1, 2, 4)
]


def curve(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points on the path that is drawn (`path_of`): cubic curves and lines in turn."""
    drawn = []
    for number, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        for share in (step / 20 for step in range(21)):
            if number % 2:
                drawn.append((x + share * (to_x - x), y + share * (to_y - y)))
                continue
            rest, middle = 1 - share, (y + to_y) / 2
            weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
            controls = ((x, y), (x, middle), (to_x, middle), (to_x, to_y))
            drawn.append(tuple(sum(w * c[axis] for w, c in zip(weights, controls, strict=True)) for axis in (0, 1)))
    return drawn


@pytest.mark.parametrize("edges", [WORDS, TRANSFER, DENSE], ids=["words", "transfer", "dense"])
def test_no_edge_crosses_a_box(edges: list[tuple[str, str]]) -> None:
    keys = list(dict.fromkeys(key for edge in edges for key in edge))
    corners, lines = placed(keys, edges)
    assert corners.keys() == set(keys) and lines.keys() == set(edges)
    for (x, y), (other_x, other_y) in combinations(corners.values(), 2):
        assert abs(x - other_x) >= WIDTH or abs(y - other_y) >= HEIGHT, "two boxes overlap"
    for (source, target), points in lines.items():
        assert corners[source][1] + HEIGHT <= corners[target][1], "an edge goes down"
        assert points[0] == (corners[source][0] + WIDTH / 2, corners[source][1] + HEIGHT)
        assert points[-1] == (corners[target][0] + WIDTH / 2, corners[target][1])
        for x, y in curve(points):
            for key, (left, top) in corners.items():
                assert not (left < x < left + WIDTH and top < y < top + HEIGHT), (source, target, key)


def test_boxes_without_edges_stand_side_by_side() -> None:
    corners, lines = placed(["a", "b"], [])
    assert not lines and corners["b"][0] >= corners["a"][0] + WIDTH and corners["a"][1] == corners["b"][1]


def test_a_path_is_a_curve_between_layers_and_a_line_past_one() -> None:
    assert path_of([(0, 50), (20, 94), (20, 144), (0, 188)]) == "M0 50 C0 72 20 72 20 94 L20 144 C20 166 0 166 0 188"
