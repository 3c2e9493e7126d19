"""The supported versions of Python: package, lock, Makefile and documents agree."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from components.pipeline.code_identity import normal


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = {name: text(name).splitlines() for name in ("requirements.lock", "requirements-test.lock")}
REQUIREMENTS = [Requirement(line) for lines in LOCKS.values() for line in lines]


def test_the_package_declares_the_versions():
    project = PYPROJECT["project"]
    supported = SpecifierSet(project["requires-python"])
    assert tuple(f"3.{minor}" for minor in range(30) if supported.contains(f"3.{minor}")) == VERSIONS
    prefix = "Programming Language :: Python :: "
    assert tuple(line.removeprefix(prefix) for line in project["classifiers"] if line.startswith(prefix)) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lock_holds_the_package_on_every_version(version):
    """Each requirement of the package and of its extras is pinned once for this version, within its range."""
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.4",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": "x86_64",
        "sys_platform": "linux",
    }
    pins = [each for each in REQUIREMENTS if each.marker is None or each.marker.evaluate(environment)]
    names = [normal(each.name) for each in pins]
    assert len(set(names)) == len(names)
    pinned = dict(zip(names, pins, strict=True))
    project = PYPROJECT["project"]
    for line in [
        *project["dependencies"],
        *(line for group in project["optional-dependencies"].values() for line in group),
    ]:
        required = Requirement(line)
        if required.name == project["name"]:
            continue
        (pin,) = pinned[normal(required.name)].specifier
        assert pin.operator == "=="
        assert required.specifier.contains(pin.version), line


def test_the_lock_fits_every_machine():
    """One version of each package: neither a build for one kind of processor, nor packages of CUDA, nor a version that
    only some Pythons have."""
    names = [normal(each.name) for each in REQUIREMENTS]
    assert len(set(names)) == len(names)
    assert [name for name in names if name.startswith(("nvidia-", "cuda-")) or name == "triton"] == []
    assert all(each.url is None and re.fullmatch(r"==[^+,]+", str(each.specifier)) for each in REQUIREMENTS)


def test_the_second_lock_adds_what_its_file_names():
    """Packages of a run stand in the first lock, those of tests, lint and export in the second, and none in both."""
    run, test = ({normal(Requirement(line).name) for line in lines} for lines in LOCKS.values())
    assert run & test == set()
    lines = [line.partition("#")[0].strip() for line in text("requirements-test.in").splitlines()]
    named = {normal(Requirement(line).name) for line in lines if line}
    assert named <= test
    assert {"playwright", "mypy", "moto", "kubernetes-validate", "cfn-lint", "transformers", "onnxruntime"} <= test


def test_make_and_the_readme_name_the_versions():
    (listed,) = re.findall(r"(?m)^VERSIONS := (.*)$", text("Makefile"))
    assert sorted(listed.split()) == list(VERSIONS)
    first, last = ([int(part) for part in version.split(".")] for version in (VERSIONS[0], VERSIONS[-1]))
    assert f"not {tuple(first)} <= sys.version_info < ({last[0]}, {last[1] + 1})" in text("Makefile")
    assert f"Python {VERSIONS[0]} to {VERSIONS[-1]}" in text("Makefile")
    assert f"Python {VERSIONS[0]} to {VERSIONS[-1]}" in " ".join(text("README.md").split())
