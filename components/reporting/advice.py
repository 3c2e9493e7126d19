"""What a person wants to know first, and what to do next: whether transfer helped, what is served, what is wrong."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from components.settings.section import BASELINE
from components.settings.tasks import budget_name

#: Gain of the primary metric between the two largest label budgets from which more labels are advised.
GAIN = 0.01
#: Number of rows and share of a class from which a confusion is named.
CONFUSED, SHARE = 5, 0.15


@dataclass(frozen=True)
class Advice:
    """A step to take.

    Attributes:
        command: that does it; empty if there is none.
        page: of `headstart ui` that shows it; empty if there is none.
    """

    text: str
    command: str = ""
    page: str = ""


def summary(task: str, evaluation: Mapping[str, Any], decision: Mapping[str, Any]) -> dict[str, Any]:
    """The answers for one task: {task, transfer (sentences), served (a sentence), reasons (of the decision), mistakes
    (as in evaluation.json), steps}."""
    last, challenger = evaluation["budgets"][-1], evaluation.get("challenger")
    # The recipes' comparison with the best baseline is about the same question as the stored models' comparison.
    kinds = ("transfer",) if challenger else ("transfer", "baseline")
    transfer = [evaluation["headline"]] if evaluation["headline"] else []
    transfer += [of["text"] for of in evaluation["statements"] if of["budget"] == last and of["kind"] in kinds]
    transfer += [challenger["text"]] if challenger else []
    # The report of a run is written before its decision, so the decision may be one of an earlier version.
    served = decision.get("story", decision["verdict"]) if decision else "nothing was decided yet"
    served = served[0].upper() + served[1:] if served.split()[0].isalpha() else served
    return {
        "task": task,
        "transfer": transfer or ["No system was initialised from a language model, so there is nothing to compare."],
        "served": f"{served}.",
        "reasons": list(decision.get("reasons", [])),
        "mistakes": evaluation.get("mistakes", {}),
        "steps": [asdict(step) for step in advice(task, evaluation)],
    }


def advice(task: str, evaluation: Mapping[str, Any], *, flags: str = "") -> list[Advice]:
    """The next steps for a task, the most useful first."""
    steps = [_labels(task, evaluation, flags), _transfer(evaluation, flags), _confusion(task, evaluation, flags)]
    steps += [Advice(sentence, f"headstart check --settings{flags}") for sentence in cut_texts(evaluation)]
    return [step for step in steps if step is not None]


def cut_texts(evaluation: Mapping[str, Any]) -> list[str]:
    """One sentence for each system that does not read all texts to their end."""
    return [
        f"{system} does not read {share:.1%} of the texts to their end: raise max_length and set chunk in finetune."
        for system, share in evaluation.get("cut", {}).items()
    ]


def _labels(task: str, evaluation: Mapping[str, Any], flags: str) -> Advice | None:
    """Whether more labels help, by the last step of the label curve of the best system."""
    cells = best_cells(evaluation)[-2:]
    if len(cells) < 2:
        return None
    first, last = (cell["scores"][evaluation["main"]]["mean"] for cell in cells)
    before, after = (budget_name(cell["budget"]) for cell in cells)
    step, title = f"from {before} to {after} {evaluation['unit']}", evaluation["titles"][evaluation["main"]]
    if last - first >= GAIN:
        text = f"Label more texts: {step}, {title} rose from {first:.3f} to {last:.3f}."
        return Advice(text, f"headstart suggest --task {task} --count 50{flags}")
    text = f"Look at the errors before labelling more: {step}, {title} did not rise ({first:.3f} to {last:.3f})."
    return Advice(text, f"headstart ui{flags}", f"/errors?{urlencode({'task': task})}")


def _transfer(evaluation: Mapping[str, Any], flags: str) -> Advice | None:
    stored = [system for system in evaluation["systems"] if "artifact" in system]
    best = max(stored, key=lambda system: system["artifact"]["scores"][evaluation["main"]]["mean"], default=None)
    if best is None or best.get("family") != BASELINE:
        return None
    text = f"The best system, {best['system']}, has no language model. "
    if any(system.get("family") != BASELINE for system in evaluation["systems"]):
        text += "Another encoder, or more text of the domain, may help."
        return Advice(text, f"headstart study which-source{flags}")
    text += "A published encoder may help: headstart init FILE --start NAME --overwrite, then headstart fit."
    return Advice(text, "headstart starts")


def _confusion(task: str, evaluation: Mapping[str, Any], flags: str) -> Advice | None:
    """The most frequent confusion of the best system with the most labels, over all seeds, if it is frequent."""
    cells = best_cells(evaluation)
    matrix = cells[-1].get("confusion") if cells else None
    if not matrix:
        return None
    count, true, predicted = max(
        (count, row, column)
        for row, counts in enumerate(matrix)
        for column, count in enumerate(counts)
        if row != column
    )
    rows = sum(matrix[true])
    if count < CONFUSED or count < SHARE * rows:
        return None
    names = {"true": evaluation["labels"][true], "predicted": evaluation["labels"][predicted]}
    return Advice(
        f"Look at {names['true']}: {int(count)} of {int(rows)} predictions for its rows are {names['predicted']}. More "
        "labels of both classes, or a clearer definition, may help.",
        f"headstart ui{flags}",
        f"/errors?{urlencode({'task': task} | names)}#rows",
    )


def best_cells(evaluation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The label budgets of the system that is best with the most labels, in their order."""
    order = evaluation["budgets"]
    best = evaluation["best"].get(str(order[-1]))
    cells = [cell for system in evaluation["systems"] if system["system"] == best for cell in system["budgets"]]
    return sorted(cells, key=lambda cell: order.index(cell["budget"]))
