"""params.yaml: all problems are reported at once, by key."""

import re
from copy import deepcopy
from functools import reduce
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.errors import ConfigError
from components.pipeline.checks import check_file, check_params
from components.settings.loading import load_params
from components.settings.params import Params

ROOT = Path(__file__).parents[2]
SHIPPED = sorted([ROOT / "params.yaml", *ROOT.glob("experiments/*/params.yaml")])


@pytest.fixture
def raw() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "params.yaml").read_text())


def problems(raw: dict[str, Any], tmp_path: Path) -> list[str]:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError) as caught:
        load_params(path)
    # The lines of keys: test_problems_have_the_line_of_their_key_and_a_computed_key_has_none.
    return [re.sub(r" \(line \d+\)$", "", line.strip()) for line in str(caught.value).splitlines()[1:]]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_shipped_file_is_valid(path):
    params = load_params(path)
    assert set(params.run.families) <= set(params.pretrain) | set(params.static) == set(params.finetune)
    assert set(params.adapt) == (set(params.pretrain) if "adapted" in params.run.starts else set())
    assert params.registry.production == (path.parent == ROOT)


CASES = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))


def changed(raw: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Settings with other values of dotted keys."""

    def section(path: list[str]) -> dict[str, Any]:
        return reduce(lambda part, name: part.setdefault(name, {}), path, raw)

    for key, value in changes.items():
        *path, last = key.split(".")
        if isinstance(value, str) and value.startswith("="):
            *of, name = value[1:].split(".")
            value = deepcopy(section(of)[name])
        if value == "-":
            del section(path)[last]
        else:
            section(path)[last] = value
    return raw


@pytest.mark.parametrize("case", CASES["loading"], ids=lambda case: next(iter(case["changes"])))
def test_all_problems_are_named_at_once(raw, tmp_path, case):
    shown = problems(changed(raw, case["changes"]), tmp_path)
    for line, expected in zip(shown, case.get("expected", shown), strict=True):
        assert line.startswith(expected)
    assert [part for part in case.get("within", ()) if part not in "\n".join(shown)] == []


@pytest.mark.parametrize("case", CASES["checks"], ids=lambda case: next(iter(case["changes"])))
def test_settings_that_do_not_fit_are_reported_before_a_run(raw, case):
    raw["run"]["starts"] = ["scratch", "pretrained", "adapted"]
    with pytest.raises(ConfigError) as caught:
        check_params(Params.model_validate(changed(raw, case["changes"])))
    assert [part for part in case["within"] if part not in str(caught.value)] == []


NAME = "is not a valid name; use letters (A-Z, a-z), digits, '-' and '_', and start with a letter or a digit"


NAMED = ("data.tasks", "pretrain", "adapt", "finetune", "together", "adapt_task")
WRONG = ("../../x; touch y", "a b", "$(id)", "-rf", "_a", "", "a.b", "ชื่อ", "a/b", "a\n")


@pytest.mark.parametrize(("section", "name"), [*zip(cycle(NAMED), WRONG, strict=False)])
def test_names_that_become_paths_and_commands_are_refused(raw, tmp_path, section, name):
    blocks = {
        "data.tasks": raw["data"]["tasks"],
        "together": raw.setdefault("together", {}),
        "adapt_task": raw.setdefault("adapt_task", {}),
    }.get(section, raw.get(section))
    blocks[name] = next(iter(blocks.values()), {"tasks": ["aws-type"] * 2} if section == "together" else {})
    result = [line for line in problems(raw, tmp_path) if "unknown name" not in line]
    assert result == [f"{section}: {name!r} {NAME}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "pretrain: {My Model: {training: {tokenz: 3}}}",
            ["pretrain: 'My Model'", "pretrain.My Model.training.tokenz"],
        ),
        ("pretrain: {a.b: {training: 3}}", ["pretrain: 'a.b'", "pretrain.a.b.training: must be"]),
        (
            "data: {tasks: {'my task!': {path: x, zz: 1}}}",
            ["data.tasks: 'my task!'", "data.tasks.my task!.zz: unknown"],
        ),
        ("finetune: {My Model: {epochs: many}}", ["finetune: 'My Model'", "finetune.My Model.epochs: must be"]),
        ("distil: {'x y': {teachers: 3}}", ["distil: 'x y'", "distil.x y.teachers: must be"]),
        ("~: 3\nrun: {zz: 3}", ["None: Keys should be strings", "run.zz: unknown key"]),
        ("data: {unlabelled: [3]}", ["data.unlabelled.0: must be"]),
    ],
)
def test_a_refused_name_and_a_problem_within_its_block(text, expected, tmp_path):
    shown = problems(yaml.safe_load(text), tmp_path)
    assert [part for part in expected if not any(line.startswith(part) for line in shown)] == []


@pytest.mark.parametrize("out", ["../x", "/tmp/x", "a/../b", "a;b", "a b", "$HOME", "", ".", "a//b", "-x", "a/", "~/x"])
def test_the_output_folder_is_below_the_repository(raw, tmp_path, out):
    raw["run"]["out"] = out
    (problem,) = problems(raw, tmp_path)
    assert problem.startswith("run.out: is not a valid folder; ") and problem.endswith(f"(found {out!r})")


@pytest.mark.parametrize(
    ("file", "base", "prefix", "alias"),
    [
        ("params.yaml", {}, "headstart", "champion"),
        ("experiments/imdb/params.yaml", {}, "headstart-imdb", "best"),
        ("experiments/an other/params.yaml", {"experiment": "x"}, "headstart-an-other", "best"),
        ("experiments/imdb/params.yaml", {"prefix": "team"}, "team", "best"),
        ("experiments/imdb/params.yaml", {"production": True}, "headstart-imdb", "champion"),
        ("params.yaml", {"production": False}, "headstart", "best"),
    ],
)
def test_settings_files_do_not_share_registered_models(raw, tmp_path, file, base, prefix, alias):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    raw["registry"] = base
    (tmp_path / file).write_text(yaml.safe_dump(raw))
    registry = load_params(tmp_path / file).registry
    assert (registry.prefix, registry.alias, registry.model_name("t")) == (prefix, alias, f"{prefix}-t")


@pytest.mark.parametrize(("text", "expected"), CASES["malformed"])
def test_what_no_settings_file_holds(text, expected, tmp_path):
    (tmp_path / "params.yaml").write_text(text, "latin-1")
    with pytest.raises(ConfigError, match=f"(?s){expected}"):
        load_params(tmp_path / "params.yaml")


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="does not exist; run from the project's folder"):
        load_params(tmp_path / "absent.yaml")


def test_problems_have_the_line_of_their_key_and_a_computed_key_has_none(tmp_path):
    """`adapt.ulmfit` is a copy of `pretrain.ulmfit` that nobody wrote."""
    file = tmp_path / "params.yaml"
    file.write_text(
        "run:\n  seed: abc\ndata:\n  general: {path: g}\n  domain: {path: d}\n  tasks:\n"
        "    mood: {path: data, train: t.csv, text: text, label: label}\n"
        "pretrain:\n  ulmfit:\n    training: {token: 100}\nfinetune:\n  ulmfit: {max_lenght: 3}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_params(file)
    first, *problems = str(caught.value).splitlines()
    assert first == f"{file}: 3 problem(s)"
    assert [problem.strip() for problem in problems] == [
        "run.seed: must be a valid integer, unable to parse string as an integer (found 'abc') (line 2)",
        "pretrain.ulmfit.training.token: unknown key; did you mean 'tokens'? (line 10)",
        "finetune.ulmfit.max_lenght: unknown key; did you mean 'max_length'? (line 12)",
    ]


def test_check_lists_the_problems_of_settings_and_data_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("text,label\n" + "".join(f"row {n},{'ab'[n % 2]}\n" for n in range(40)))
    Path("params.yaml").write_text(
        "data:\n  tasks:\n"
        "    one: {path: ., train: rows.csv, test: null, kind: classification, text: text, label: lable}\n"
        "    two: {path: ., train: rows.csv, test: null, kind: clasification, text: text, label: label}\n"
        "    three: {path: nowhere, kind: classification, text: text, label: label}\n"
        "    four: {path: ., train: rows.csv, test: null, kind: regression, text: text, score: label}\n"
        "    five: {path: ., txt: text}\n"
        "promote: {confidence: 2}\n"
    )
    with pytest.raises(ConfigError) as caught:
        list(check_file(Path("params.yaml")))
    first, *problems = str(caught.value).splitlines()
    assert first == "params.yaml: 6 problem(s)"
    for problem, expected in zip(
        problems,
        [
            r"data\.tasks\.five\.txt: unknown key; did you mean 'text'\? \(line 7\)",
            r"promote\.confidence: must be less than 1 \(found 2\) \(line 8\)",
            r"data\.tasks\.two\.kind: unknown task kind 'clasification'.*\(line 4\)",
            r"data\.tasks\.three\.path: nowhere does not exist.*\(line 5\)",
            r"rows\.csv, line 1: no column 'lable'; did you mean 'label'",
            r"rows\.csv, line 2: the score \('label'\) is 'a', not a number",
        ],
        strict=True,
    ):
        assert re.search(expected, problem), problem
