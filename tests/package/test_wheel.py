"""The wheel, installed in a fresh environment and used outside of the repository."""

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from components.core.errors import EXTRAS
from components.pipeline.code_identity import normal

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
PARTS = ("components", "flows", "headstart", "pyproject.toml", "README.md", "LICENSE", "dvc.yaml", "requirements.lock")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources; building writes next to them."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        kept = {"symlinks": True, "ignore": unwanted} if copy is shutil.copytree else {}
        copy(ROOT / name, source / name, **kept)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    subprocess.run([*PIP, "wheel", *options, str(output), str(source)], check=True)
    (actual,) = output.glob("*.whl")
    return actual


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, in which the packages of this one can be imported."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    # Later in the path than the environment's own packages; .pth files there, such as those of editable installs, have
    # no effect.
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [*PIP, "--python", str(python), "install", "--no-deps", "--no-index", "--force-reinstall", str(wheel)]
    subprocess.run(install, check=True)
    return folder


def outside(command: list[str | Path], folder: Path) -> str:
    """The output of a command in a folder outside of the repository."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_is_in_the_wheel(wheel):
    tracked = [
        path.relative_to(ROOT).as_posix()
        for name in ("components", "flows", "headstart")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    with zipfile.ZipFile(wheel) as archive:
        assert set(tracked) <= set(archive.namelist())
        # Links are files in the wheel.
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        assert "Provides-Extra: pipeline" in archive.read(metadata).decode()


def test_the_command_and_the_import_outside_of_the_repository(environment, tmp_path):
    shown = outside([environment / "bin" / "headstart", "starts"], tmp_path)
    assert "all-MiniLM-L6-v2" in shown
    script = """
import headstart
from components.core.resources import FILES
rows = [{"text": f"{word} {number}", "label": label} for number in range(4) for word, label in (("a", "x"), ("b", "y"))]
model = headstart.fit(rows, verbose=False)
print(headstart.__file__)
print(FILES)
print(model.predict(["a"])["label"][0])
"""
    module, files, label, _ = outside([environment / "bin" / "python", "-c", script], tmp_path).split("\n")
    assert Path(module).is_relative_to(environment)
    assert Path(files).is_relative_to(environment)
    assert label == "x"


def test_the_package_names_what_a_run_of_the_project_needs():
    required = {normal(Requirement(line).name) for lines in requirements().values() for line in lines}
    text = (ROOT / "requirements.in").read_text(encoding="utf-8")
    named = {
        normal(Requirement(line.partition("#")[0].strip()).name) for line in text.splitlines() if line[:1].isalpha()
    }
    assert named - {"hypothesis"} <= required  # part of the built-in text, which only a checkout extracts


def requirements() -> dict[str, list[str]]:
    """Extra -> its requirements; "": those of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def test_every_import_is_of_a_dependency_or_of_an_extra_that_its_error_names():
    """Base packages and `EXTRAS` cover every import of the product, and each extra installs what it names."""
    needed = {name: {normal(Requirement(line).name) for line in lines} for name, lines in requirements().items()}
    base = needed.pop("")
    assert EXTRAS.keys() == needed.keys()
    of_extras = {package for packages in EXTRAS.values() for package in packages}
    # Installed with another package of the extra.
    comes_with = {"starlette": "fastapi", "dvc_data": "dvc", "botocore": "boto3", "httpx2": "huggingface_hub"}
    for extra, packages in EXTRAS.items():
        assert {normal(comes_with.get(name, name)) for name in packages} <= needed[extra]
    distributions = {"yaml": "pyyaml", "sklearn": "scikit-learn", "python_calamine": "python-calamine"}
    distributions["pycrfsuite"] = "python-crfsuite"
    modules = {
        name.partition(".")[0]
        for folder in ("components", "flows", "headstart")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    other = modules - set(sys.stdlib_module_names) - {"components", "flows", "headstart"} - of_extras
    # h5py: its own message names it; transformers: imported by code that an export writes.
    assert {name for name in other if normal(distributions.get(name, name)) not in base} == {"h5py", "transformers"}
