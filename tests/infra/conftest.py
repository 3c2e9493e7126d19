"""Fixtures of the infra tests: the files of infra/, read once."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stack import compose

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def values() -> dict[str, str]:
    """The settings of .env.example with recognisable secrets."""
    secrets = iter(f"secret{number}" for number in range(100))
    return compose.fill_secrets(compose.read_env(compose.ENV_EXAMPLE), lambda: next(secrets))


@pytest.fixture(scope="session")
def composed(values: dict[str, str]) -> dict[str, Any]:
    """compose.yaml with its variables replaced."""
    return compose.load_compose(values)


@pytest.fixture(scope="session")
def locked() -> dict[str, str]:
    """The version of each package in requirements.lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return dict(line.split(";")[0].strip().split("==") for line in lines if "==" in line and not line.startswith("#"))


@pytest.fixture(scope="session")
def manifests() -> list[dict[str, Any]]:
    """Every document of the kustomization's resources."""
    folder = ROOT / "infra" / "kubernetes"
    names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [document for name in names for document in yaml.safe_load_all((folder / name).read_text())]
