"""Copies of labelled files and folders below data/tasks."""

from pathlib import Path

import pytest

from components.cli.onboarding.project import take_files
from components.core import artifacts, outputs
from components.core.errors import ArtifactError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label in ("good", "bad"):
        (tmp_path / "reviews" / label).mkdir(parents=True)
        for number in range(100):
            (tmp_path / "reviews" / label / f"{number}.txt").write_text(f"a {label} text {number}")
    (tmp_path / "project").mkdir()
    return tmp_path / "reviews"


def take(folder: Path) -> Path:
    root = folder.parent / "project"
    return root / take_files({"train": folder}, name="reviews", root=root) / folder.name


def test_a_folder_is_copied_as_one_and_listed_a_fixed_number_of_times(folder, monkeypatch):
    swept: list[Path] = []
    for module in (artifacts, outputs):
        sweep = module.sweep
        monkeypatch.setattr(
            module, "sweep", lambda path, sweep=sweep, **named: (swept.append(path), sweep(path, **named))
        )
    copy = take(folder)
    assert sorted(path.name for path in copy.rglob("*.txt")) == sorted(path.name for path in folder.rglob("*.txt"))
    assert len(swept) < 10


def test_a_copy_is_renewed_and_one_that_a_person_changed_is_kept(folder):
    copy = take(folder)
    (folder / "good" / "0.txt").write_text("another text")
    (folder / "good" / "1.txt").unlink()
    take(folder)
    assert (copy / "good" / "0.txt").read_text() == "another text" and not (copy / "good" / "1.txt").exists()
    (copy / "bad" / "0.txt").write_text("a label was corrected here")
    (folder / "good" / "2.txt").unlink()
    with pytest.raises(ArtifactError, match="reviews: exists, and has changed since Headstart has written it"):
        take(folder)
    assert (copy / "bad" / "0.txt").read_text() == "a label was corrected here" and (copy / "good" / "2.txt").exists()
