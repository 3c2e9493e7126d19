"""The errors of a system: the most certain wrong answers, confusions and slices."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.data.tasks.data import Split
from components.data.tasks.examples import read_split
from components.data.tasks.kinds import find_kind, scoring_for
from components.data.tasks.mistakes import Mistake, mistakes
from components.data.tasks.results import read_answers
from components.evaluation.aggregates import SELECTION, rows_of_selection
from components.pages.project import Project
from components.settings.section import BASELINE, BASELINES

#: Rows on one page, and largest number of classes with a table of confusions.
PAGE, CLASSES = 25, 30
#: Number of confused pairs that are listed.
PAIRS = 8
SELECTION_SPLIT = "selection"


@dataclass(frozen=True)
class Choice:
    """What of the errors is shown; empty values are not restricted. `start`: number of rows before the first one on the
    page."""

    task: str
    system: str
    split: str
    budget: int
    seed: int
    true: str = ""
    predicted: str = ""
    slice: str = ""
    start: int = 0

    def query(self, **changes: str | int) -> dict[str, str]:
        """Parameters of the address, with changes. A change of the rows starts at the first one."""
        values = {**vars(self), **({} if "start" in changes else {"start": 0}), **changes}
        return {name: str(value) for name, value in values.items() if value not in ("", 0) or name == "seed"}


def read_errors(project: Project, task: str, wanted: Mapping[str, str]) -> dict[str, Any] | None:
    """The errors of the run that a request asks for, as the page shows them: the choice, what there is to choose, the
    number of rows, the errors, the (C, C) counts of confusions, its most frequent pairs (true, predicted, count), and
    slices (name, rows, errors), the most errors above the average first. None if nothing was evaluated."""
    evaluation, facts = project.evaluation(task), project.facts(task)
    if not evaluation or facts is None:
        return None
    # Ensembles have no answers of their own.
    stored = [entry for entry in evaluation["systems"] if (project.out / _folder(task, entry)).is_dir()]
    if not stored:
        return None
    budgets = evaluation["budgets"]
    budget = _known(wanted.get("budget", ""), budgets, budgets[-1])
    names = [entry["system"] for entry in stored]
    best = evaluation["best"].get(str(budget), "")
    system = _known(wanted.get("system", ""), names, best if best in names else names[0])
    chosen = next(entry for entry in stored if entry["system"] == system)
    directory = project.out / _folder(task, chosen)
    split_name = _known(wanted.get("split", ""), ["test", SELECTION_SPLIT], "test")
    answers = read_answers(directory, "test" if split_name == "test" else SELECTION[facts.selection])
    seeds = sorted(seed for name, of, seed in answers if (name, of) == (system, budget))
    if not seeds:
        return None
    seed = _known(wanted.get("seed", ""), seeds, seeds[0])
    examples = project.examples(task)
    held = None if split_name == "test" else rows_of_selection(examples, facts)
    split = read_split(examples, "test") if held is None else held(budget, seed)
    given = answers[system, budget, seed]
    scoring = scoring_for(facts.kind, facts.labels)
    errors = mistakes(split, given, scoring)
    choice = Choice(
        task,
        system,
        split_name,
        budget,
        seed,
        true=_known(wanted.get("true", ""), facts.labels, ""),
        predicted=_known(wanted.get("predicted", ""), facts.labels, ""),
        slice=_known(wanted.get("slice", ""), sorted({name for name in split.slices if name}), ""),
        start=max(0, int(start)) if (start := wanted.get("start", "0")).isdecimal() else 0,
    )
    counts, pairs = scoring.confusion(split.targets, given), Counter((entry.true, entry.predicted) for entry in errors)
    return {
        "choice": choice,
        "systems": names,
        "budgets": budgets,
        "seeds": seeds,
        "rows": len(split),
        "errors": [entry for entry in errors if _selected(entry, choice)],
        "labels": facts.labels if counts is not None and len(facts.labels) <= CLASSES else (),
        "counts": counts,
        "pairs": [(*pair, count) for pair, count in pairs.most_common(PAIRS)] if counts is not None else (),
        "slices": _slices(split, errors),
        "separator": find_kind(facts.kind).io.separator,
    }


def _folder(task: str, system: Mapping[str, Any]) -> str:
    return f"finetuned/{task}/{BASELINES if system['family'] == BASELINE else system['system']}"


def _known(given: str, choices: Sequence[Any], default: Any) -> Any:
    return next((value for value in choices if str(value) == given), default)


def _selected(entry: Mistake, choice: Choice) -> bool:
    wanted = (choice.true, entry.true), (choice.predicted, entry.predicted), (choice.slice, entry.slice)
    return all(not value or value == given for value, given in wanted)


def _slices(split: Split, errors: Sequence[Mistake]) -> list[tuple[str, int, int]]:
    rows = Counter(name for name in split.slices if name)
    wrong = Counter(entry.slice for entry in errors)
    usual = len(errors) / max(len(split), 1)
    counted = ((name, count, wrong[name]) for name, count in rows.items())
    return sorted(counted, key=lambda entry: usual * entry[1] - entry[2])
