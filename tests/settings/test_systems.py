"""The identity of a system and its name in results."""

import pytest

from components.settings.systems import System


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("ulmfit-adapted", System("ulmfit", "adapted")),
        ("transformer-xl-pretrained-frozen", System("transformer-xl", "pretrained", frozen=True)),
        ("bert-task-adapted", System("bert", "task-adapted")),
        ("bert-scratch-with-all-tasks", System("bert", "scratch", "with", "all-tasks")),
        ("bert-vectors-after-imdb-frozen", System("bert", "vectors", "after", "imdb", frozen=True)),
        ("gpt-adapted-from-large", System("gpt", "adapted", "from", "large")),
        ("tfidf-words-pairs", System("", "tfidf-words-pairs")),
    ],
)
def test_a_name_is_that_of_one_system(name: str, system: System) -> None:
    assert str(system) == name
    assert System.named(name) == system
    assert System.of(system.family, system.variant) == system
    assert str(system.tuned) == name.removesuffix("-frozen")
