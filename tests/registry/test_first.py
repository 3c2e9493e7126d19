"""The first champion where no candidate is shown to be better."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from components.learners.words.classifier import WordsClassifier
from components.registry.contest import Contest
from components.registry.decide import Decision
from components.registry.ledger import Ledger
from components.registry.version import Version
from components.settings.registry import PromotionRule

WORDS, FROZEN, TUNED = "words-tfidf", "ulmfit-adapted-frozen", "ulmfit-adapted"


def decision(verdict: str, against: str, gain: float = 0.04) -> Decision:
    scores = {"candidate_score": 0.64, "champion_score": 0.6, "gain": gain, "low": gain - 0.1, "high": gain + 0.1}
    result = {"verdict": verdict, "mode": "superiority", "metric": "macro_f1", "against": against, "rival": against}
    return Decision.of({**result, **scores, "reasons": [f"{verdict} against {against}"]})


#: Names of candidates and of what they are compared with in first.yaml.
NAMES = {"words": WORDS, "frozen": FROZEN, "tuned": TUNED, "chance": None, "baseline": ""}


@pytest.mark.parametrize("case", yaml.safe_load(Path(__file__).with_name("first.yaml").read_text()))
def test_the_cheapest_candidate_that_is_better_than_chance(monkeypatch, tmp_path, case):
    challenger, refused = NAMES[case["challenger"]], [NAMES[name] for name in case.get("refused", ())]
    verdicts = {tuple(map(NAMES.get, pair.split())): verdict for pair, verdict in case["verdicts"].items()}
    versions = {
        system: Version(
            "m", str(number), "", "", {"system": system, "family": "words" if system == WORDS else "ulmfit"}
        )
        for number, system in enumerate((WORDS, FROZEN, TUNED), 1)
    }
    seen: list[tuple[str, str | None]] = []
    counts: list[int] = []

    def judged(by, candidate, **given):
        pair = (candidate.system, given.get("rival", ""))
        seen.append(pair)
        if pair[1] is None:
            counts.append(len(given["earlier"]))
        return decision(verdicts.get(pair, "inconclusive"), pair[1] or "another")

    monkeypatch.setattr(Contest, "judge", judged)
    monkeypatch.setattr(Contest, "recorded", lambda contest, version, made, first: made())
    state: Any = SimpleNamespace(
        decisions=(), refusal=lambda registry, version: "barred" if version.system in refused else ""
    )
    ledger: Any = SimpleNamespace(registry=None)
    contest = Contest(
        PromotionRule(), ledger, "task", tmp_path, tmp_path, state, None, versions[challenger], [*versions.values()]
    )
    against = "" if challenger == WORDS else WORDS
    verdict = verdicts.get((challenger, ""), "inconclusive")
    result = contest.first_champion(decision(verdict, against, case["gain"]))
    assert seen == [tuple(map(NAMES.get, pair.split())) for pair in case["compared"]]
    # Comparisons with the constant prediction are counted apart.
    assert counts == list(range(len(counts)))
    if "chosen" not in case:
        assert isinstance(result, list) and len(result) == len(versions) - (verdict == "reject")
    else:
        assert isinstance(result, tuple)
        version, made = result
        assert version.system == NAMES[case["chosen"]]
        assert made.first
        assert made.reasons[0].startswith(f"m/{version.number} ({version.system}) is the first champion because ")


def test_words_are_served_until_a_challenger_is_better(pipeline):
    """The model that cross-validation prefers cannot be told from words on test, which are right on all rows; then the
    same challenger is compared with them, and words stay."""
    pipeline.write_words()
    pipeline.write_classifier("adapted", knows=25)
    registered = pipeline.registered(starts=["adapted"])
    candidates = registered["candidates"]["letters"]
    assert [entry["system"] for entry in candidates] == ["tfidf-words-characters", "ulmfit-adapted"]
    # As if the score of selection of the fine-tuned model were the highest.
    registered["challengers"]["letters"] = candidates[-1]
    listing = pipeline.out / "registry" / "registered.json"
    listing.write_text(json.dumps(registered))

    def decided():
        written = pipeline.promoted(confidence=0.9999)
        return dict(written["decisions"]["letters"])

    made = decided()
    assert (made["verdict"], made["against"], made["first"]) == ("promote", "most frequent class", True)
    assert made["candidate"]["version"] == made["alias_after"] == candidates[0]["version"]
    name = made["candidate"]["name"]
    assert made["reasons"][0].startswith(
        f"{name}/{candidates[0]['version']} (tfidf-words-characters) is the first champion because nothing better is "
        f"shown: {name}/{candidates[1]['version']} (ulmfit-adapted) is not shown to be better: accuracy 0.9615 against "
        "1.0000 of baseline tfidf-words-characters, gain "
        "-0.0385, between -"
    )
    assert made["test_uses"] == 1, "comparisons with chance have an error of their own"
    registry = pipeline.registry
    assert registry.get(name, made["alias_after"]).tags["decision"].startswith("promote; ")
    state = Ledger(registry).state(name)
    assert state.last is not None and list(state.last["reasons"]) == made["reasons"]
    assert [entry["decision"]["verdict"] for entry in state.decisions] == ["inconclusive", "promote"]
    assert isinstance(pipeline.champion(), WordsClassifier)

    later = decided()
    assert (later["candidate"]["version"], later["alias_after"]) == (candidates[1]["version"], made["alias_after"])
    assert (later["verdict"], later["champion"]["version"], later["test_uses"]) == (
        "inconclusive",
        made["alias_after"],
        2,
    )
