"""`headstart lectures`: rules on given tables, claims and the page."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import ConfigError
from components.data.scoring.intervals import Interval
from components.reporting.findings import Chapter, Drawing, Findings, Table, cell
from components.settings.loading import load_params
from components.settings.systems import System
from components.studies import lectures
from components.studies.command import STUDIES
from components.studies.frame import Outputs
from components.studies.lectures import AGREES, NOT, UNDECIDED, UNMEASURED, Claim, Rule, measure
from tests.studies.conftest import CLAIMS

ROOT = Path(__file__).parents[2]
TABLE = Table(
    ["system", "against", "difference"],
    [
        ["a", "labels", "0.300 [0.100, 0.500]"],
        ["a", "epochs", "-0.200 [-0.300, -0.100]"],
        ["b", "labels", "0.100 [-0.100, 0.300]"],
        ["c", "labels", "9.000"],
    ],
    "task",
)
LABELS = {"system": "a", "against": "labels"}


TWO = [
    Table(TABLE.columns, [TABLE.rows[0]], "task one"),
    Table(TABLE.columns, [["a", *TABLE.rows[2][1:]]], "two"),
]
BOTH = {"against": "labels", "system": ["a", "b"]}


def changes(*cells: str) -> list[Table]:
    return [Table(["without", "difference"], [[f"technique {number}", of] for number, of in enumerate(cells)])]


@pytest.mark.parametrize(
    ("rule", "tables", "answer", "number"),
    [
        ({"where": LABELS, "above": 0}, None, AGREES, ""),
        ({"where": LABELS, "below": 0}, None, NOT, ""),
        ({"where": {"system": "a", "against": "epochs"}, "above": 0}, None, NOT, ""),
        ({"where": {"system": "b"}, "above": 0}, None, UNDECIDED, ""),
        ({"where": BOTH, "above": 0}, None, UNDECIDED, "b, labels: difference 0.100 [-0.100, 0.300]"),
        ({"where": {"system": "a"}, "above": 0, "any": True}, None, AGREES, ""),
        ({"where": {"against": "epochs"}, "above": 0, "any": True}, None, NOT, ""),
        ({"where": LABELS, "above": 0.1}, None, UNDECIDED, ""),
        # [0.1, 0.5] minus half of [-0.1, 0.3].
        ({"where": LABELS, "above": -0.04, "minus": {"where": {"system": "b"}, "times": 0.5}}, None, UNDECIDED, ""),
        ({"where": LABELS, "above": -0.06, "minus": {"where": {"system": "b"}, "times": 0.5}}, None, AGREES, ""),
        # A row is missing; a cell has no interval, which is no evidence; two cells.
        ({"where": {"system": ["a", "d"], "against": "labels"}, "above": 0}, None, None, ""),
        ({"where": {"system": ["a", "c"], "against": "labels"}, "above": 0}, None, None, ""),
        ({"where": {"system": "c"}, "above": 0}, None, None, ""),
        ({"where": {"system": "a"}, "above": 0}, None, None, ""),
        ({"where": {"system": ["a", "c"], "against": "labels"}, "above": 0, "any": True}, None, AGREES, ""),
        # Without rows, every cell that is not empty.
        ({"below": 0}, changes("-0.2 [-0.3, -0.1]", ""), AGREES, ""),
        ({"below": 0}, changes("-0.2 [-0.3, -0.1]", "-0.2"), None, ""),
        # Cells of two tables are two.
        ({"where": LABELS, "above": 0}, TWO, None, ""),
        ({"where": LABELS, "above": 0, "any": True}, TWO, AGREES, "task one, a, labels: difference 0.300 ["),
        ({"where": LABELS, "above": 0, "table": "one"}, TWO, AGREES, ""),
    ],
)  # fmt: skip
def test_a_rule_has_three_answers(rule, tables, answer, number):
    of = {"column": "difference"} | rule
    if answer:
        actual = Rule.model_validate(of).judge(tables or [TABLE])
        assert actual[0] == answer and actual[1].startswith(number)
        return
    with pytest.raises(LookupError):
        Rule.model_validate(of).judge(tables or [TABLE])
    claim = Claim.model_validate(CLAIMS["topics"].model_dump() | {"rules": [of]})
    entry = {"measure": claim.measure, "run": str(claim.run), "command": claim.command(claim.run), "commit": "0"}
    assert claim.judge(entry | {"tables": [asdict(each) for each in tables or [TABLE]]}) == (UNDECIDED, "")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5", None),
        ("film [old, new]", None),
        ("more than 4 [0.5, more than 4]", (float("inf"), 0.5, float("inf"))),
        ("1,234.5 [1,000.0, 2,000.0]", (1234.5, 1000, 2000)),
        ("50.0% [40.0%, 60.0%]", (0.5, 0.4, 0.6)),
        (cell(Interval(*[float("inf")] * 3), ".3g"), [float("inf")] * 3),  # no sample reaches the score
    ],
)
def test_intervals_of_cells(text, values):
    actual = lectures.interval_in(text)
    assert actual == (values and Interval(*values))


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_name_studies_their_options_and_tasks(name):
    claim = CLAIMS[name]
    inspect.signature(STUDIES[claim.study].measure).bind(None, **claim.options)
    params = load_params(ROOT / claim.run)
    named = [claim.options[key] for key in ("task", "other", "tags") if key in claim.options]
    assert {*claim.examples, *named} <= params.data.tasks.keys()
    if encoder := str(claim.options.get("encoder", "")):
        assert params.block(encoder.rpartition("-")[0])
    assert all((rule.above is None) != (rule.below is None) for rule in claim.rules)


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim.study == "systems"])
def test_the_systems_of_a_claim_are_those_of_its_run(name):
    """The column of a rule has the system of the options, and the budget of the task."""
    claim = CLAIMS[name]
    params = load_params(ROOT / claim.run)
    task = params.data.tasks[str(claim.options["task"])]
    unit = "labelled rows" if task.kind == "tagging" else "labels a class"
    for rule in claim.rules:
        system, _, last = rule.column.rpartition(", ")
        assert system in (f"{claim.options['system']} minus it", "seconds")
        assert last == f"{task.budgets[-1]} {unit}"
        for of in (System.named(each) for each in [str(claim.options["system"]), *rule.where["system"]]):
            assert not of.family or of.family in params.run.families
            group = {"with": params.together, "from": params.distil, "after": params.intermediate_tasks}.get(
                of.way, [""]
            )
            assert of.group in group and (not of.frozen or params.finetune[of.family].frozen)


@pytest.fixture
def claim() -> Claim:
    rule = {"where": LABELS, "column": "difference", "above": 0}
    of = {
        "section": "Transfer",
        "says": "It helps.",
        "needs": "a run",
        "measure": "the difference.",
        "study": "fake",
        "stages": ["evaluate"],
    }
    return Claim.model_validate(of | {"rules": [rule], "options": {"task": "t"}, "run": "experiments/x.yaml"})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of the studies that run."""
    seen: list[dict[str, Any]] = []
    rows = [TABLE.rows[1], TABLE.rows[0], *TABLE.rows[2:], *([f"d{n}", "labels", "x|y"] for n in range(6))]
    chapter = Chapter("Title", ["Lead."], ["Text."], [Table(TABLE.columns, rows, "task")], [Drawing("<svg/>", "Map.")])

    def found(study: str, outputs: Outputs, **options: Any) -> Findings:
        seen.append(options)
        return Findings(chapter, {})

    monkeypatch.setattr(lectures, "STUDIES", {"fake": "fake"})
    monkeypatch.setattr(lectures, "find", found)
    monkeypatch.setattr(lectures, "commit_of", lambda _: "0123abc")
    return seen


@pytest.fixture
def measured(claim: Claim, runs: list[Any], outputs: Outputs, tmp_path: Path) -> Any:
    """`measured("mine.yaml")` measures the claim on a run, by default its own, once for equal commands."""
    done: dict[str, Findings] = {}
    return lambda params=claim.run: measure(
        "helps", {"helps": claim}, outputs, params=Path(params), output=tmp_path, done=done
    )


def test_the_page_has_what_was_measured(measured, runs, tmp_path):
    for _ in range(2):
        # The second time the findings are at hand.
        measured()
    assert runs == [{"task": "t"}]
    text = (tmp_path / "lectures.md").read_text()
    number = "a, labels: difference 0.300 [0.100, 0.500]"
    assert f"| Transfer | [helps](#helps) | agrees | {number} |" in text and f"**Agrees.** {number}" in text
    assert "![Map.](lectures/helps-1.svg)" in text and (tmp_path / "lectures/helps-1.svg").read_text() == "<svg/>\n"
    assert "headstart study fake --task t --params experiments/x.yaml" in text
    # Eight rows, and a file with all of them.
    assert text.index("| a | labels |") < text.index("| a | epochs |")
    assert "| d3 |" in text and "| d4 |" not in text and "[All tables](lectures/helps.md)" in text
    assert "| d5 | labels | x\\|y |" in (tmp_path / "lectures/helps.md").read_text()
    measured("mine.yaml")
    assert runs[1] == {}, "the options are meant for the claim's own run"


def test_nothing_is_judged_that_was_measured_otherwise(claim, measured, runs, tmp_path):
    entry = measured()
    assert claim.judge(None) == (UNMEASURED, "") and claim.judge(entry)[0] == AGREES
    assert claim.judge(entry | {"tables": []}) == (UNDECIDED, "")
    command = "headstart study fake --params experiments/x.yaml"
    for changes in ({"run": "other.yaml"}, {"command": command}, {"measure": "another."}, {"commit": "0123abc-dirty"},
                    {"commit": None}):  # fmt: skip
        assert claim.judge(entry | changes) == (UNMEASURED, "")
    others = [{"options": {"task": "u"}}, {"study": "other"}, {"run": Path("y.yaml")}, {"options": {}}]
    # Another rule on the same measurement needs no run.
    others.append({"rules": [claim.rules[0].model_copy(update={"above": None, "below": 0})]})
    for change in others:
        lectures.write_pages({"helps": claim.model_copy(update=change)}, tmp_path)
        text = (tmp_path / "lectures.md").read_text()
        if "rules" in change:
            assert "**Does not agree.**" in text and len(runs) == 1
        else:
            assert "not measured by this rule" in text and "0.300" not in text and "Map." not in text


def test_a_run_that_lacks_what_the_claim_needs_is_refused(claim, outputs):
    needs = claim.model_copy(update={"settings": {"run.out": "out", "pretrain.gpt.source": "any"}})
    with pytest.raises(ConfigError, match=r"pretrain\.gpt\.source: is None; this claim needs a run"):
        needs.check(outputs)
    claim.check(outputs)


def test_the_committed_page_is_that_of_its_numbers():
    entries = json.loads((ROOT / "docs" / "lectures" / "lectures.json").read_text())
    assert entries.keys() <= CLAIMS.keys()
    for name, text in lectures.pages(CLAIMS, entries).items():
        assert (ROOT / "docs" / name).read_text() == text
