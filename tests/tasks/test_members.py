"""Several classifiers in one directory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.artifacts import read_manifest
from components.core.errors import ConfigError
from components.data.tasks.members import DOMAIN, encoder_of, extract_member, members_of, save_members


def writer(head: str, encoder: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps({"kind": "pair", "settings": head}))
        (folder / "labels.json").write_text("[]")
        (folder / "head").write_text(head)
        (folder / "encoder").mkdir()
        (folder / "encoder" / "weights").write_text(encoder)

    return write


def write_domain(folder: Path) -> None:
    (folder / DOMAIN).write_text("d")


def files(directory: Path) -> list[str]:
    read_manifest(directory, kind="classifier", verify=True)
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


FLAT = ["config.json", "encoder/weights", "head", "labels.json", "manifest.json"]


@pytest.mark.parametrize("heads", ["a", "aaa"])
def test_a_single_member_and_equal_members_are_one_classifier(heads, tmp_path):
    save_members(tmp_path / "m", [writer(head, "e") for head in heads], facts={})
    assert files(tmp_path / "m") == FLAT and members_of(tmp_path / "m") == [tmp_path / "m"]
    assert encoder_of(tmp_path / "m") == tmp_path / "m" / "encoder"


@pytest.mark.parametrize(
    ("encoders", "stored"), [("ee", ["encoder"]), ("ef", ["members/0/encoder", "members/1/encoder"])]
)
def test_an_encoder_that_all_members_have_is_stored_once(encoders, stored, tmp_path):
    save_members(
        tmp_path / "m",
        [writer(head, encoder) for head, encoder in zip("ab", encoders, strict=True)],
        facts={},
        beside=write_domain,
    )
    actual = [name.removesuffix("/weights") for name in files(tmp_path / "m") if name.endswith("weights")]
    assert actual == stored
    assert json.loads((tmp_path / "m" / "config.json").read_text()) == {"kind": "pair", "members": 2}
    for number, (member, head, encoder) in enumerate(zip(members_of(tmp_path / "m"), "ab", encoders, strict=True)):
        assert (member / "head").read_text() == head
        assert (encoder_of(member) / "weights").read_text() == encoder
        extract_member(tmp_path / "m", number, tmp_path / f"alone-{number}")
        assert files(tmp_path / f"alone-{number}") == sorted([DOMAIN, *FLAT])
        assert (tmp_path / f"alone-{number}" / "encoder" / "weights").read_text() == encoder
    with pytest.raises(ConfigError, match=r"has 2 member\(s\), no member 2"):
        extract_member(tmp_path / "m", 2, tmp_path / "none")
