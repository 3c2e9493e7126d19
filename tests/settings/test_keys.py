"""Every key of the settings is read by the code."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from components.settings.params import Params
from components.settings.section import Section

ROOT = Path(__file__).parents[2]
#: Keys that are read under another name: file and expression that read them.
OTHERWISE = {
    ("ChecksSettings", "empty_rows"): ("data/checks/compare.py", '("empty_rows", "empty"'),
    ("ChecksSettings", "duplicates"): ("data/checks/compare.py", '("duplicates", "duplicates"'),
    ("ChecksSettings", "label_conflicts"): ("data/checks/compare.py", '("label_conflicts", "conflicts"'),
    ("ChecksSettings", "class_balance"): ("data/checks/compare.py", '("class_balance", "classes"'),
    ("TaskSource", "train_languages"): ("settings/tasks.py", "self.train_languages or"),
    ("LanguageModelTraining", "long_window"): ("settings/training.py", "if self.long_window is not None:"),
    ("TokenizerSettings", "domain_vocabulary"): ("pipeline/jobs.py", "params.downstream_vocabulary"),
    ("RegistrySettings", "tracking"): ("registry/tracking/registry.py", "settings.address"),
    ("RegistrySettings", "production"): ("registry/champion.py", "settings.alias"),
}


def sections(annotation: Any) -> Iterator[type[Section]]:
    """The sections that a type contains, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections(field.annotation)
    for argument in get_args(annotation):
        yield from sections(argument)


def keys() -> list[tuple[str, str]]:
    """Section and key; an inherited key is listed for each section that has it."""
    return sorted({(section.__name__, key) for section in sections(Params) for key in section.model_fields})


@functools.cache
def attributes() -> frozenset[str]:
    """Names of the attributes that components and flows read, and the names that they pass to `getattr`, `at` and
    `over`. The validators of the settings do not count: a key that only they read has no effect."""
    result = set()
    files = [file for folder in ("components", "flows") for file in (ROOT / folder).rglob("*.py")]
    for file in (file for file in files if file.parent.name != "settings"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                result.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
                result |= {word.value for word in node.args if isinstance(word, ast.Constant)}
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("at", "over"):
                # Dotted keys of the table of stages.
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                result |= {part for each in values if isinstance(each, ast.Constant) for part in each.value.split(".")}
    return frozenset(result)


@pytest.mark.parametrize(("section", "key"), keys())
def test_every_key_is_read(section, key):
    if (section, key) in OTHERWISE:
        file, expression = OTHERWISE[section, key]
        assert expression in (ROOT / "components" / file).read_text(encoding="utf-8")
    else:
        assert key in attributes()
