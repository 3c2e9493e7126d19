"""The sentence about which model is served and why: one for every situation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.core.errors import ArtifactError
from components.registry.decide import Decision, read_decisions
from components.registry.explain import Evaluated

FIGURES = "macro F1 0.6609 against 0.6105 of baseline latent-words, gain +0.0504, between {low} and +0.1183"


UNSURE, SURE = FIGURES.format(low="-0.0175"), FIGURES.format(low="+0.0100")


def decided(verdict: str, *reasons: str, low: float | None = -0.0175, **changes: Any) -> dict[str, Any]:
    numbers = {"candidate_score": 0.6609, "champion_score": 0.6105, "gain": 0.0504, "low": low, "high": 0.1183}
    return {
        "system": "ulmfit-adapted",
        "verdict": verdict,
        "mode": "superiority",
        "metric": "macro_f1",
        "against": "baseline latent-words",
        "reasons": list(reasons) or ["few rows"],
        **numbers,
        **changes,
    }


def evaluated(**scores: tuple[float, float]) -> dict[str, Any]:
    """System -> (score on test, score of selection) of its stored model."""
    return {
        "main": "macro_f1",
        "systems": [
            {
                "system": (name := system.replace("_", "-")),
                "family": "baseline" if name.endswith("words") else "ulmfit",
                "artifact": {
                    "selection": selection,
                    "scores": {"macro_f1": {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}},
                },
            }
            for system, (mean, selection) in scores.items()
        ],
    }


USUAL = evaluated(latent_words=(0.6105, 0.58), ulmfit_adapted=(0.6609, 0.64))


LUCKY = evaluated(latent_words=(0.6105, 0.58), ulmfit_adapted=(0.6609, 0.64), tfidf_words=(0.7, 0.5))


HIGHER = (
    "; tfidf-words has a higher score on test (0.7000 against {0}), but the challenger is chosen by its score of "
    "selection, which is 0.6400 of ulmfit-adapted and 0.5000 of tfidf-words"
)


FIRST = (
    "headstart/1 (latent-words) is the first champion because nothing better is shown: headstart/2 (ulmfit-adapted) is "
    f"not shown to be better: {UNSURE}"
)


WORDS, TUNED = "latent-words", "ulmfit-adapted"


SERVED = f"{TUNED} (version 2) is the current model: {SURE}"


UNSHOWN = f"(version 2) stays: {TUNED} is not shown to be better, "


STAYS = f"{WORDS} (version 2) stays: "


@pytest.mark.parametrize(
    ("decision", "served", "evaluation", "expected"),
    [
        (decided("inconclusive", "worse than chance"), None, USUAL, "there is no current model: worse than chance"),
        (decided("promote", low=0.01), TUNED, USUAL, SERVED),
        (decided("promote", low=0.01), TUNED, LUCKY, SERVED + HIGHER.format("0.6609")),
        (decided("promote", FIRST, first=True, system=WORDS), WORDS, USUAL, FIRST),
        (decided("inconclusive"), WORDS, USUAL, f"{WORDS} {UNSHOWN}{UNSURE}"),
        (decided("inconclusive", "cannot be read", gain=None), WORDS, USUAL, f"{STAYS}cannot be read"),
        (decided("reject", "no gain"), WORDS, USUAL, f"{STAYS}{TUNED} is rejected, no gain ({UNSURE})"),
        (
            decided("unchanged", "m/2 is already the champion", gain=None),
            TUNED,
            LUCKY,
            f"{TUNED} (version 2) stays: m/2 is already the champion{HIGHER.format('0.6609')}",
        ),
    ],
)
def test_every_situation_has_a_sentence(
    decision: dict[str, Any], served: str | None, evaluation: dict[str, Any], expected: str
) -> None:
    version = None if served is None else {"version": "2", "system": served}
    evaluated = Evaluated(evaluation, TUNED, [WORDS, TUNED])
    assert evaluated.story(Decision.of(decision), decision["system"], version) == expected


@pytest.mark.parametrize("stored", [{"verdict": "keep"}, 3])
def test_decisions_of_another_version_are_named(stored, tmp_path):
    path = tmp_path / "decision.json"
    path.write_text(json.dumps({"decisions": {"t": stored}}))
    with pytest.raises(ArtifactError, match=r"decision.json: holds decisions that cannot be read \(.*; run .* promote"):
        read_decisions(path)
    path.write_text(json.dumps({"decisions": {"t": {"verdict": "reject", "further": 1}}}))
    assert read_decisions(path)["t"].verdict == "reject"
