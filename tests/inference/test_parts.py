"""Prediction in parts: the same output as in one piece, whatever parts, processes and interruptions."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.cluster import ray_cluster
from components.core.errors import ArtifactError
from components.data.formats.rows import open_rows
from components.data.formats.stored import open_stored, store
from components.learners.prediction import Classifier, Predicted
from components.serving import parts
from components.serving.parts import LoadableModel, PartOptions, predict_parts
from components.settings.cluster import ClusterSettings
from tests.conftest import until
from tests.inference.files import ByLength, names, predict_file, refused

ROWS = 60


def write(path: Path) -> Path:
    """Rows with line breaks in values (csv), blank lines, a bad row, an empty text, and other alphabets."""
    texts = [f"{row}" + (" ไทย é" if row % 7 == 0 else "") for row in range(ROWS)]
    texts[5], texts[11] = "", "with\0nul"
    if path.suffix == ".parquet":
        table = pa.table({"id": list(range(ROWS)), "text": texts})
        pq.write_table(table, path, row_group_size=23)
    elif path.suffix == ".jsonl":
        lines = [json.dumps({"id": row, "text": text}) for row, text in enumerate(texts)]
        lines[30] = "not json"
        path.write_text("\n\n".join(lines) + "\n")
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        lines = [f"id{sign}text"] + [f"{row}{sign}{text}" for row, text in enumerate(texts)]
        if path.suffix == ".csv":
            lines[20] = '19,"a ""quoted"" text\nof two lines, with a comma"'
        lines[40] += f"{sign}too many"
        path.write_text("\ufeff" * (path.suffix == ".csv") + "\n".join(lines) + "\n" * (path.suffix == ".tsv"))
    return path


def predicted(
    source: Path,
    output: Path,
    cluster: ClusterSettings,
    *,
    load: Callable[[], Classifier] = ByLength,
    identity: str = "v1",
    **named: Any,
) -> Predicted:
    rejects = output.with_name(f"{output.name}.rejected.jsonl")
    given = {"workers": 1, "part_bytes": 150, "part_rows": 10, "batch_size": 4, "rejects": rejects} | named
    model = LoadableModel(load, "classification", identity)
    return predict_parts(source, output, model=model, options=PartOptions(cluster, **given))


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterSettings:
    return ClusterSettings(launcher="local", storage=str(tmp_path / "store"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_parts_of_a_file_are_the_file(suffix, tmp_path):
    source = write(tmp_path / f"in{suffix}")
    bad: list[str] = []

    whole = list(open_rows(source, rejected=lambda error, _: bad.append(str(error))).rows)
    bad_whole = list(bad)
    for size in (1, 40, 150, 10**6):
        bad.clear()
        stored = tmp_path / f"stored-{size}.parquet"
        made = store(
            source,
            stored,
            part_bytes=size,
            part_rows=max(7, size // 10),
            rejected=lambda error, _: bad.append(str(error)),
        )
        path = stored if stored.exists() else source
        assert [row for span in made for row in open_stored(path, span).rows] == whole and bad == bad_whole
        assert (len(made) == 1) == (size == 10**6)
    assert len(whole) >= ROWS - 2 and whole[0][1]["id"] in (0, "0")


@pytest.mark.parametrize(
    ("suffix", "target"), [(".csv", ".csv"), (".tsv", ".jsonl"), (".jsonl", ".parquet"), (".parquet", ".csv")]
)
def test_the_output_is_that_of_one_piece(suffix, target, tmp_path, cluster):
    source, whole, joined = write(tmp_path / f"in{suffix}"), tmp_path / f"whole{target}", tmp_path / f"joined{target}"
    rejects = tmp_path / "whole.rejected.jsonl"
    done = predict_file(source, output=whole, classifier=ByLength(), rejects=rejects, batch_size=4)

    counts: list[int] = []
    started = lambda rows, done, parts: counts.extend([rows, done, parts]) or counts.append  # noqa: E731
    assert predicted(source, joined, cluster, started=started) == done
    assert done.rejected >= 1 and done.empty == 1

    rows, earlier, number, *batches = counts
    assert rows >= done.rows and earlier == 0 and number > 4 and sum(batches) == done.rows
    if target == ".parquet":
        assert pq.read_table(joined).equals(pq.read_table(whole))
    else:
        assert joined.read_bytes() == whole.read_bytes()
    assert joined.with_name(f"{joined.name}.rejected.jsonl").read_bytes() == rejects.read_bytes()
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_a_path_without_suffix_is_a_folder_of_parts(tmp_path, cluster):
    source, output = write(tmp_path / "in.csv"), tmp_path / "out"
    for _ in range(2):
        done = predicted(source, output, cluster, overwrite=True)
        lines = [path.read_text().splitlines() for path in sorted(output.glob("part-*"))]
        assert len(lines) > 4 and {part[0] for part in lines} == {"id,text,prediction,confidence"}
        assert sum(map(len, lines)) - len(lines) == done.rows + 1, "one value contains a line break"


def test_a_text_file_has_a_text_in_every_line(tmp_path, cluster):
    source = tmp_path / "in.txt"
    source.write_text("abc\n\nwith, a comma, and more\nthe end of it all\n")
    assert predicted(source, tmp_path / "out.csv", cluster).rows == 4
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines == [
        "text,prediction,confidence",
        "abc,short,0.75",
        ",,",
        '"with, a comma, and more",long,1.0',
        "the end of it all,long,1.0",
    ]
    predicted(source, tmp_path / "folder", cluster)
    assert [path.suffix for path in (tmp_path / "folder").glob("part-*")] == [".csv"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_relative_paths_are_those_of_the_driver_on_ray(tmp_path, monkeypatch):
    """The workers of a cluster have another working directory."""
    with ray_cluster.connected(ClusterSettings()):
        monkeypatch.chdir(tmp_path)
        write(Path("in.csv"))
        away = ClusterSettings(launcher="ray", address="auto", storage=str(tmp_path / "storage"))
        done = predicted(Path("in.csv"), Path("out.csv"), away, workers=None)
    predict_file(Path("in.csv"), output=Path("whole.csv"), classifier=ByLength(), rejects=Path("r.jsonl"), batch_size=4)
    assert done.rows > 50 and Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert len(Path("out.csv.rejected.jsonl").read_text().splitlines()) == done.rejected


def test_a_file_without_rows(tmp_path, cluster):
    source = tmp_path / "in.csv"
    source.write_text("id,text\n")
    assert predicted(source, tmp_path / "out.csv", cluster) == Predicted(rows=0, empty=0)
    assert (tmp_path / "out.csv").read_text() == "id,text,prediction,confidence\n"


def run_and_kill(source: Path, output: Path, *, after: int) -> None:
    """Start a prediction in another process and kill it when `after` parts are finished."""
    script = (
        "import sys; from functools import partial; from tests.inference.test_parts import *\n"
        "source, output = sys.argv[1:]\n"
        "cluster, load = ClusterSettings(launcher='local', storage='store'), partial(ByLength, seconds=0.1)\n"
        "if __name__ == '__main__':\n"
        "    predicted(Path(source), Path(output), cluster, load=load, workers=2)\n"
    )
    folder = output.with_name(f".{output.name}.parts")
    path = output.with_name("run.py")
    path.write_text(script)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, str(path), str(source), str(output)],
        env={**os.environ, "PYTHONPATH": root},
        cwd=root,
        start_new_session=True,
    )
    until(lambda: len(list(folder.glob("part-*.json"))) >= after or process.poll() is not None)
    process.kill()
    process.wait()
    until(lambda: not group_lives(process.pid))  # the workers end with it


def group_lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(pid, 0)
        return True
    return False


def test_a_killed_run_continues_with_the_missing_parts(tmp_path, cluster, monkeypatch):
    source, output = write(tmp_path / "in.csv"), tmp_path / "out.csv"
    predict_file(
        source, output=tmp_path / "whole.csv", classifier=ByLength(), rejects=tmp_path / "r.jsonl", batch_size=4
    )
    run_and_kill(source, output, after=3)
    assert not output.exists(), "the output is complete or absent"

    finished = {path.name for path in (tmp_path / ".out.csv.parts").glob("part-*.json")}
    computed: list[str] = []
    real = parts.predict_part
    monkeypatch.setattr(
        parts, "predict_part", lambda part, **named: computed.append(part.mark.name) or real(part, **named)
    )
    counts: list[int] = []
    started = lambda rows, done, left: counts.extend([rows, done, left]) or (lambda rows: None)  # noqa: E731
    predicted(source, output, cluster, started=started)
    assert len(finished) >= 3 and not finished & set(computed) and counts[1] > 0
    assert output.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "out.csv.rejected.jsonl").read_bytes() == (tmp_path / "r.jsonl").read_bytes()


class Killed(BaseException):
    """Ends a prediction as a kill does."""


def killed(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("changed", ["input", "model"])
def test_parts_of_another_model_or_input_are_not_used(changed, tmp_path, cluster, monkeypatch):
    source, output = write(tmp_path / "in.csv"), tmp_path / "out.csv"
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(parts, "_append", killed)
        predicted(source, output, cluster)
    if changed == "input":
        os.utime(source)
    counts: list[int] = []
    started = lambda rows, done, left: counts.append(done) or (lambda rows: None)  # noqa: E731
    predicted(source, output, cluster, started=started, identity="v2" if changed == "model" else "v1")
    assert counts == [0]


@pytest.mark.parametrize("name", ["results", "out.csv", "out.csv.rejected.jsonl"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_others_have_written_stays(name, overwrite, tmp_path, cluster):
    source, mine = write(tmp_path / "in.csv"), tmp_path / name
    if mine.suffix:
        mine.write_text("mine")
    else:
        mine.mkdir()
        (mine / "thesis.txt").write_text("mine")
    output = tmp_path / name.removesuffix(".rejected.jsonl")
    with pytest.raises(ArtifactError, match=f"{mine}: exists, and was not written by Headstart; move it away"):
        predicted(source, output, cluster, overwrite=overwrite)
    assert names(tmp_path) == sorted(["in.csv", name])
    assert (mine if mine.suffix else mine / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("place", ["_append", "link_or_copy", "rmtree"])
@pytest.mark.parametrize("name", ["out.csv", "out"])
def test_a_run_that_ends_while_its_parts_are_joined_is_finished_by_the_same_command(
    name, place, tmp_path, cluster, monkeypatch
):
    source, output = write(tmp_path / "in.csv"), tmp_path / name
    if output.suffix and place == "link_or_copy":
        pytest.skip("a file is not linked")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(parts.shutil if place == "rmtree" else parts, place, killed)
        predicted(source, output, cluster)
    # Nothing is computed again.
    monkeypatch.setattr(parts, "predict_part", killed)
    done = predicted(source, output, cluster)
    written = output.read_text() if output.suffix else "".join(file.read_text() for file in output.glob("part-*"))
    assert done.rows > 50 and written.count("short") + written.count("long") == done.rows - done.empty
    assert not [path for path in names(tmp_path) if path.startswith(".")]


def test_folders_and_members_are_predicted(tmp_path):
    """What `fit` reads: folders of classes, and FILE#MEMBER; a changed file is another input."""
    for name, text in (("pos", "abc"), ("neg", "a long one")):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "1.txt").write_text(text)
    done = predict_file(tmp_path / "in", output=tmp_path / "out.csv", classifier=ByLength())
    assert (done.rows, (tmp_path / "out.csv").read_text().split("\n")[1:3]) == (
        2,
        ["neg,a long one,long,1.0", "pos,abc,short,0.75"],
    )
    (tmp_path / "in.json").write_text(json.dumps({"train": [{"text": "abc"}], "test": [{"text": "a long one"}]}))
    for member in ("train", "test"):
        predict_file(Path(f"{tmp_path}/in.json#{member}"), output=tmp_path / f"{member}.csv", classifier=ByLength())
    assert (tmp_path / "test.csv").read_text() == "text,prediction,confidence\na long one,long,1.0\n"
    refused(tmp_path / "none", tmp_path / "o.csv", "none: does not exist")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", tmp_path / "o.csv", "empty: is empty")
