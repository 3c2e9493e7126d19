"""What a person wants to know first, and what to do next: whether transfer helped, what is served, what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np

from components.core.steps import step
from components.data.scoring.intervals import inseparable_pairs
from components.data.tasks.kinds import find_kind
from components.registry.decide import Decision
from components.settings.section import BASELINE
from components.settings.systems import System
from components.settings.tasks import LABELLED, budget_name

#: The content of evaluation.json, or a part of it.
Evaluation = Mapping[str, Any]
#: Gain of the primary metric between the two largest label budgets from which more labels are advised.
GAIN = 0.01
#: Factor of the largest label budget to the next one that is advised.
MORE = 4


@dataclass(frozen=True)
class Advice:
    """A step to take.

    Attributes:
        command: that does it; empty if there is none.
        page: of `headstart ui` that shows it; empty if there is none.
        line: of params.yaml to write; empty if there is none.
    """

    text: str
    command: str = ""
    page: str = ""
    line: str = ""


def summary(task: str, evaluation: Evaluation, decision: Decision) -> dict[str, Any]:
    """The answers for one task: {task, transfer (a sentence), served (a sentence), reasons (`Decision.grounds`),
    mistakes (as in evaluation.json), separator (of the parts of their inputs), steps}."""
    # The report of a run is written before its decision, so the decision may be one of an earlier version.
    served = decision.story or decision.verdict or "nothing was decided yet"
    served = served[0].upper() + served[1:] if served.split()[0].isalpha() else served
    return {
        "task": task,
        "transfer": answer(evaluation),
        "served": f"{served}.",
        "reasons": decision.grounds,
        "mistakes": evaluation.get("mistakes", {}),
        "separator": find_kind(evaluation.get("kind", LABELLED[0])).io.separator.replace("\n", " / "),
        "steps": [asdict(each) for each in advice(task, evaluation, system=decision.current)],
    }


def answer(evaluation: Evaluation) -> str:
    """What transfer was worth, in one sentence; empty if no system was initialised from a language model."""
    return str(evaluation["headline"] or (evaluation.get("challenger") or {}).get("text", ""))


def advice(task: str, evaluation: Evaluation, *, system: str = "", flags: str = "") -> list[Advice]:
    """The next steps for a task, the most useful first. `system`: of the current model; by default the best one."""
    cells = best_cells(evaluation)
    system = system or evaluation["best"].get(str(evaluation["budgets"][-1]), "")
    steps = [
        _labels(task, evaluation, cells, flags),
        _transfer(evaluation),
        _confusion(task, evaluation, flags),
        _cut(evaluation, system),
    ]
    return [each for each in steps if each is not None]


def _cut(evaluation: Evaluation, system: str) -> Advice | None:
    """Whether a system reads the texts to their end."""
    if not (share := evaluation.get("cut", {}).get(system)):
        return None
    text = f"{system} does not read {share:.1%} of the texts to their end. Read them in parts."
    return Advice(text, line=f"finetune: {{{System.named(system).family}: {{max_length: 2000, chunk: 64}}}}")


def _labels(task: str, evaluation: Evaluation, cells: Sequence[Evaluation], flags: str) -> Advice | None:
    """Whether more labels help, by the last step of the label curve of the best system; first of those that exist."""
    cells = cells[-2:]
    if len(cells) < 2:
        return None
    rows, budgets = evaluation.get("rows", {}).get("train", 0), evaluation["budgets"]
    learned = labels_used(evaluation)
    first, last = (cell["scores"][evaluation["main"]]["mean"] for cell in cells)
    before, after = (budget_name(cell["budget"]) for cell in cells)
    more, metric = f"from {before} to {after} {evaluation['unit']}", evaluation["titles"][evaluation["main"]]
    if last - first >= GAIN:
        if budgets[-1] > 0 and rows > learned:
            text = f"Use more of your labels ({learned:,} of {rows:,} rows): {more}, {metric} rose from {first:.3f} to "
            larger = MORE * budgets[-1] if MORE * budgets[-1] < rows else "all"
            line = f"data: {{tasks: {{{task}: {{budgets: {[*budgets, larger]}}}}}}}"
            return Advice(f"{text}{last:.3f}.", f"headstart retrain{flags}", line=line)
        text = f"Label more texts: {more}, {metric} rose from {first:.3f} to {last:.3f}."
        suggested = evaluation.get("kind", LABELLED[0]) in LABELLED
        return Advice(text, f"{step('suggest', task=task)}{flags}" if suggested else f"{step('ui')}{flags}")
    text = f"Look at the errors before labelling more: {more}, {metric} did not rise ({first:.3f} to {last:.3f})."
    return Advice(text, f"{step('ui')}{flags}", f"/errors?{urlencode({'task': task})}")


def labels_used(evaluation: Evaluation) -> int:
    """Number of labelled rows that the stored models have learned from."""
    return max((each["artifact"]["labels"] for each in evaluation.get("systems", []) if "artifact" in each), default=0)


def _transfer(evaluation: Evaluation) -> Advice | None:
    stored = [system for system in evaluation["systems"] if "artifact" in system]
    best = max(stored, key=lambda system: system["artifact"]["scores"][evaluation["main"]]["mean"], default=None)
    if best is None or best.get("family") != BASELINE:
        return None
    return Advice(
        f"The best system, {best['system']}, has no language model. A published encoder, or more text of the domain, "
        "may help: headstart init FILE --start NAME --overwrite, then headstart fit.",
        step("starts"),
    )


def _confusion(task: str, evaluation: Evaluation, flags: str) -> Advice | None:
    """The pair of labels that is told apart worst, if one is shown not to be told apart."""
    if not (pairs := not_told_apart(evaluation)):
        return None
    first, second, rate = max(pairs, key=lambda pair: pair[2])
    matrix = best_cells(evaluation)[-1]["confusion"]
    true, predicted = map(evaluation["labels"].index, (first, second))
    # The page shows the rows of one label that are answered with the other: the larger part.
    if matrix[true][predicted] < matrix[predicted][true]:
        first, second = second, first
    return Advice(
        f"Look at {first} and {second}: {rate:.0%} of their test rows are answered with the other one. More labels of "
        "both classes, or a clearer definition, may help.",
        f"{step('ui')}{flags}",
        f"/errors?{urlencode({'task': task, 'true': first, 'predicted': second})}#rows",
    )


def not_told_apart(evaluation: Evaluation) -> list[tuple[str, str, float]]:
    """Pairs of labels that the best system is shown not to tell apart on test, and the share of their rows that it
    answers with the other label."""
    cells, labels = best_cells(evaluation), evaluation.get("labels", ())
    if not cells or not cells[-1].get("confusion"):
        return []
    # The matrix is a sum over seeds, which answer the same rows.
    matrix = np.asarray(cells[-1]["confusion"])
    counts = (matrix.sum(1) / len(cells[-1]["seeds"])).astype(int).tolist()
    pairs = inseparable_pairs(matrix / np.maximum(matrix.sum(1), 1)[:, None], counts)
    return [(labels[first], labels[second], rate) for first, second, rate in pairs]


def best_cells(evaluation: Evaluation) -> list[Evaluation]:
    """The label budgets of the system that is best with the most labels, in their order."""
    order = evaluation.get("budgets") or [0]
    best = evaluation.get("best", {}).get(str(order[-1]))
    cells = [cell for system in evaluation.get("systems", ()) if system["system"] == best for cell in system["budgets"]]
    return sorted(cells, key=lambda cell: order.index(cell["budget"]))
