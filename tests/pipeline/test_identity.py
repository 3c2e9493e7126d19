"""A stage is out of date if and only if code, settings or libraries that its result depends on have changed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.errors import ConfigError
from components.pipeline.code_identity import ROOT, SETTINGS, installed, parse
from components.pipeline.identity import Identity, check_identity, identities, identity_of
from components.pipeline.jobs import WHOLE
from components.pipeline.running import run_stage
from components.settings.params import Params

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "components").rglob("*.py")
)
Flat = dict[str, Identity]


def flat(params: Params) -> Flat:
    """Identities by name as in dvc.yaml: stage@item."""
    return {
        f"{stage}@{item}" if item else stage: each
        for stage, items in identities(params).items()
        for item, each in items.items()
    }


def changed(before: Flat, after: Flat) -> set[str]:
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


@pytest.fixture(scope="module")
def raw() -> dict[str, Any]:
    """Settings with two families, two kinds of task and all ways of transfer learning."""
    settings = yaml.safe_load((ROOT / "params.yaml").read_text())
    settings["run"] |= {"families": ["ulmfit", "bert"], "tasks": ["aws-type", "aws-code"]}
    for section in ("pretrain", "adapt", "finetune"):
        settings[section]["bert"] = json.loads(json.dumps(settings[section]["ulmfit"]))
    settings["pretrain"]["bert"] |= {"model": {}}
    settings["adapt_task"] = {"aws-type": {"epochs": 2}}
    settings["together"] = {"both": {"tasks": ["aws-type", "aws-code"]}}
    return settings


@pytest.fixture(scope="module")
def before(raw: dict[str, Any]) -> Flat:
    return flat(Params.model_validate(raw))


def with_another_constant(module: str, text: str) -> str:
    """The text with one constant changed that is neither a docstring, nor a default of a setting, nor in a table."""
    tree = ast.parse(text)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        default = isinstance(node, (ast.Assign, ast.AnnAssign)) and module.startswith(SETTINGS)
        table = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LazyTable"
        typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if default or table or typing or isinstance(node, (ast.Expr, ast.JoinedStr)):
            skipped |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skipped and type(node.value) in (int, float, str):
            node.value = f"{node.value} " if isinstance(node.value, str) else 2 * node.value + 1
            return ast.unparse(tree)
    return f"{text}\nADDED = 1\n"


# All modules would take minutes.
@pytest.mark.parametrize("every", [30, pytest.param(3, marks=pytest.mark.slow)])
def test_one_constant_makes_exactly_the_stages_that_reach_its_module_out_of_date(raw, every, monkeypatch):
    # These items suffice to distinguish the modules; all items would take four times as long.
    params = Params.model_validate(raw | {"adapt_task": {}, "together": {}})
    before, read = flat(params), installed().module
    for module in MODULES[::every]:
        path = installed().path(module)
        edited = parse(with_another_constant(module, path.read_text()), settings=module.startswith(SETTINGS))
        monkeypatch.setattr(
            installed(), "module", lambda name, module=module, edited=edited: edited if name == module else read(name)
        )
        file = path.relative_to(ROOT).as_posix()
        assert changed(before, flat(params)) == {name for name, each in before.items() if file in each.code}, module


def test_a_comment_and_a_docstring_make_nothing_out_of_date():
    for module in MODULES[::3]:
        text = installed().path(module).read_text()
        commented = "\n".join(
            f"{line}  # {number}" if line.endswith(":") else line for number, line in enumerate(text.split("\n"))
        )
        try:
            ast.parse(commented)
        except SyntaxError:  # the line is part of a text over several lines
            commented = f"# {text[:0]}comment\n{text}"
        edited = parse(f"{commented}\n\n'''A text.'''\n", settings=module.startswith(SETTINGS))
        assert edited == installed().module(module), module


BERT = {
    "finetune@*-bert-*",
    *(f"together@both-bert-{start}" for start in ("scratch", "vectors", "pretrained", "adapted")),
}
SCRATCH = {"finetune@*-ulmfit-scratch", "together@both-ulmfit-scratch"}


@pytest.mark.parametrize(
    ("keys", "value", "stages"),
    [
        (("finetune", "bert", "epochs"), 7, BERT | {"register"}),
        (("finetune", "ulmfit", "scratch", "rate"), 0.1, SCRATCH | {"register"}),
        (("pretrain", "ulmfit", "training", "tokens"), 100, {"pretrain@ulmfit", "register"}),
        (("cluster", "checkpoint_seconds"), 5, set()),
        (("tokenizer", "bpe", "vocabulary"), 9000, set()),
        (("tokenizer", "wordpiece", "vocabulary"), 9000, {"tokenizer@*-wordpiece"}),
        (("cluster", "workers"), 2, set()),
        (("cluster", "storage"), "elsewhere", set()),
        (("evaluate", "ensembles"), {"both": ["ulmfit", "tfidf-words"]}, {"evaluate@*"}),
        (("ingest", "heldout"), 0.02, {"ingest@*"}),
        (("promote", "latency_ms"), 70, {"promote"}),
        (("data", "tasks", "aws-type", "seeds"), [0, 1], {"examples@aws-type", "checks"}),
        (("checks", "length"), "off", {"checks"}),
        # The default value, set explicitly.
        (("finetune", "ulmfit", "head_scale"), 1.0, set()),
        (("finetune", "ulmfit", "training", "clip"), 0.5, set()),
    ],
)
def test_a_setting_makes_the_stages_that_use_it_out_of_date(raw, before, keys, value, stages):
    settings = json.loads(json.dumps(raw))
    section = settings
    for key in keys[:-1]:
        section = section.setdefault(key, {})
    section[keys[-1]] = value
    result = changed(before, flat(Params.model_validate(settings)))
    expected = {name for name in before for pattern in stages if Path(name).match(pattern)}
    assert result == expected
    assert len(expected) >= len(stages)


def test_a_setting_of_one_task_is_named_in_a_stage_of_all_tasks(raw):
    settings = json.loads(json.dumps(raw))
    old = identity_of("checks", WHOLE, Params.model_validate(settings))
    settings["data"]["tasks"]["aws-type"]["folds"] = 4
    new = identity_of("checks", WHOLE, Params.model_validate(settings))
    assert new.changes(old) == ["setting data.tasks.aws-type.folds: 3 -> 4"]


def test_changes_are_named():
    old = Identity({"a.b": 1, "gone": "x"}, {"m.py": "1", "old.py": "2"}, {"torch": "2.12.0"})
    new = Identity({"a.b": 2, "added": [1]}, {"m.py": "3", "new.py": "2"}, {"numpy": "2.0", "torch": "2.13.0"})
    assert new.changes(old) == [
        "setting a.b: 1 -> 2",
        "setting added: new, [1]",
        'setting gone: removed, was "x"',
        "code m.py: changed",
        "code new.py: now used",
        "code old.py: no longer used",
        "library numpy: not used -> 2.0",
        "library torch: 2.12.0 -> 2.13.0",
    ]
    assert new.changes(new) == []


def test_a_stage_refuses_to_run_with_another_identity_than_the_one_on_disk(raw, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    params = Params.model_validate(raw)
    run_stage("identity", params)
    now = identity_of("evaluate", "aws-type", params)
    assert check_identity("evaluate", "aws-type", params) == now
    assert Identity.read(tmp_path / "artifacts/identity/evaluate/aws-type.json") == now
    edited = json.loads(json.dumps(raw))
    edited["evaluate"]["ensembles"] = {"both": ["ulmfit", "tfidf-words"]}
    with pytest.raises(ConfigError, match=r"evaluate/aws-type.json: code or settings .*evaluate.ensembles: {} -> "):
        run_stage("evaluate", Params.model_validate(edited), item="aws-type")


def test_families_and_kinds_that_are_not_used_are_not_reached(before):
    def files(name, folder):
        return {Path(path).stem for path in before[name].code if Path(path).parent.as_posix() == f"components/{folder}"}

    families = {"ulmfit", "bert", "gpt", "flair", "elmo", "xlnet", "cove", "word2vec"}
    assert files("pretrain@ulmfit", "models") & families == {"ulmfit"}
    assert files("adapt@bert", "models") & families == {"bert"}
    assert files("finetune@aws-type-bert-adapted", "models") & families == {"bert"}
    # The readers of vectors, from which embeddings may start.
    assert files("pretrain@ulmfit", "interchange") <= {"__init__", "vectors"}
    assert "translation" not in files("pretrain@ulmfit", "pretraining")
    assert not any("finetuning" in path for path in before["pretrain@ulmfit"].code)
    assert not any(path.startswith("components/models") for path in before["evaluate@aws-type"].code)
