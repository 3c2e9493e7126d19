"""The tables of task kinds are consistent, and a process imports only the kinds that it uses."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from components.data.tasks.kinds import KINDS, promotion_metrics
from components.learners.baselines import BASELINES
from components.learners.task_models.kinds import TASKS
from components.learners.words.systems import SYSTEMS
from components.settings.tasks import KINDS as KEYS

ROOT = Path(__file__).parents[2]
#: Loads every part of a kind, and lists the modules of this code base that are then imported.
LOAD = """
import sys
from components.learners.finetuning.stage import finetune
from components.learners.finetuning.together import together
from components.learners.baselines.stage import baseline
from components.learners.baselines import baselines_of
from components.learners.task_models.kinds import find_task
from components.data.tasks.kinds import find_kind
find_kind({kind!r}), find_task({kind!r}), baselines_of({kind!r}, language="en", which="all")
print(*(name for name in sys.modules if name.startswith("components.")))
"""


def run(code: str) -> list[str]:
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout.split()


def test_all_tables_have_the_same_kinds():
    assert KINDS.keys() == TASKS.keys() == BASELINES.keys() | SYSTEMS.keys() == KEYS.keys()
    assert all(TASKS[kind].kind == kind for kind in TASKS)


def test_no_module_outside_of_the_tables_compares_the_name_of_a_kind():
    """What differs between kinds is an attribute: of `Kind`, of its `Scoring`, or a key of its rows
    (`components.settings.tasks.has`)."""
    tables = ("data/tasks/kinds", "learners/task_models/kinds", "settings")
    compared = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for top in ("components", "flows", "headstart")
        for file in (ROOT / top).rglob("*.py")
        if not file.relative_to(ROOT).as_posix().startswith(tuple(f"components/{table}" for table in tables))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare | ast.MatchValue)
        and any(isinstance(part, ast.Constant) and part.value in {*KINDS} for part in ast.walk(node))
    ]
    assert compared == []


@pytest.mark.parametrize(("kind", "others"), [("classification", "questions tagging"), ("questions", "tagging choice")])
def test_fine_tuning_imports_only_the_modules_of_its_kind(kind, others):
    imported = run(LOAD.format(kind=kind))
    half = "texts" if kind == "classification" else kind
    base = f"components.learners.task_models.kinds.{half}", f"components.data.tasks.kinds.{kind}"
    assert set(base) <= set(imported)
    for other in others.split():
        assert not [name for name in imported if ".kinds." in name and other in name.rpartition(".")[2]]


def test_metrics_of_the_promotion_rule_start_with_the_primary_metric():
    assert promotion_metrics("tagging")[:2] == ("span_f1", "span_precision") and "accuracy" in promotion_metrics(
        "tagging"
    )
    assert promotion_metrics("classification")[0] == "macro_f1" and "ece" not in promotion_metrics("classification")
