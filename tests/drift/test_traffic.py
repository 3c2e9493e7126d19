"""The log of served rows: several writers, bounds, SIGKILL, texts, errors."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from components.registry.drift.measurements import ROW, Measured
from components.registry.drift.traffic import TrafficLog, is_written, read_traffic, segments

DIGEST = "0123456789abcdef" * 4
RECORD = ROW.itemsize


def batch(*characters: int, now: float = 1000.0) -> Measured:
    rows = np.zeros(len(characters), dtype=ROW)
    rows["characters"], rows["time"] = characters, now
    return Measured("classification", ("a", "b"), rows)


def log(folder: Path, *, megabytes: float = 1.0, text: bool = False, said: list[str] | None = None) -> TrafficLog:
    say = print if said is None else said.append
    return TrafficLog(folder, task="letters", digest=DIGEST, megabytes=megabytes, text=text, say=say)


def read(folder: Path, **options: object) -> Measured:
    return read_traffic(folder, task="letters", digest=DIGEST, **options)


def test_rows_are_read_in_the_order_of_time_from_all_writers(tmp_path):
    first, second = log(tmp_path), log(tmp_path)
    first.append([("x",), ("y",)], batch(1, 2, now=10))
    second.append([("z",)], batch(3, now=5))
    first.append([("w",)], batch(4, now=20))
    actual = read(tmp_path)
    assert actual.rows["characters"].tolist() == [3, 1, 2, 4]
    assert (actual.kind, actual.labels, actual.texts) == ("classification", ("a", "b"), ())
    assert read(tmp_path, since=10).rows["characters"].tolist() == [1, 2, 4]
    assert read(tmp_path).spread(2).rows["characters"].tolist() == [3, 4]
    assert len(read_traffic(tmp_path, task="letters", digest="f" * 64)) == 0
    assert len(read_traffic(tmp_path / "none", task="letters", digest=DIGEST)) == 0


def test_texts_are_logged_only_if_asked_for(tmp_path):
    log(tmp_path / "off").append([("secret",)], batch(6))
    assert b"secret" not in b"".join(path.read_bytes() for path in (tmp_path / "off").rglob("*") if path.is_file())
    log(tmp_path / "on", text=True).append([("first", "second"), ("a\nb",)], batch(6, 3))
    assert read(tmp_path / "on").texts == ("first\nsecond", "a\nb")


def test_the_size_is_bounded_and_the_newest_rows_are_kept(tmp_path):
    writer = log(tmp_path, megabytes=0.1, text=True)
    for number in range(300):
        writer.append([("x" * 20,)] * 50, batch(*[number] * 50, now=number))
    total = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 60_000 < total < 120_000
    characters = read(tmp_path).rows["characters"]
    assert characters[-1] == 299 and characters[0] > 250
    assert np.unique(np.diff(characters.astype(int))).tolist() == [0, 1]


def test_a_segment_that_another_process_writes_is_not_deleted(tmp_path):
    other = log(tmp_path)
    other.append([("x",)], batch(7, now=1))
    (segment,) = segments(tmp_path)
    segment.with_suffix(".text").write_text("x\n")  # of an earlier version
    mine = log(tmp_path, megabytes=0.02)
    for number in range(100):
        mine.append([("y",)] * 50, batch(*[1] * 50, now=number))
    assert 7 in read(tmp_path).rows["characters"] and segment.with_suffix(".text").exists()
    other.close()
    for _ in range(40):
        mine.append([("y",)] * 50, batch(*[1] * 50, now=200))
    assert 7 not in read(tmp_path).rows["characters"] and not segment.with_suffix(".text").exists()


def test_a_cut_batch_and_a_damaged_segment_are_left_out(tmp_path):
    writer = log(tmp_path)
    for number in (1, 2, 3):
        writer.append([("x",)], batch(number))
    writer.close()
    (segment,) = segments(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-5])
    (segment.parent / "0-1-empty.rows").write_bytes(b"")
    (segment.parent / "0-1-torn.rows").write_bytes(b'{"schema": 2, "ki')
    (segment.parent / "0-1-earlier.rows").write_bytes(json.dumps({"schema": 1}).encode() + b"\n" + b"x" * RECORD)
    assert read(tmp_path).rows["characters"].tolist() == [1, 2]


def test_rows_survive_sigkill_of_one_of_two_writers(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from tests.drift.test_traffic import batch, log\n"
        "writer = log(Path(sys.argv[1]))\n"
        "for number in range(20): writer.append([('x',)] * 10, batch(*[number] * 10, now=number))\n"
        "print('written', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", program, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    log(tmp_path).append([("y",)], batch(99, now=99))
    assert read(tmp_path).rows["characters"].tolist() == [*np.repeat(np.arange(20), 10), 99]
    assert not is_written(segments(tmp_path)[0])


def test_an_error_pauses_the_log_and_is_said_once(tmp_path, monkeypatch):
    (tmp_path / "letters").write_text("a file in the place of the folder")
    said: list[str] = []
    writer, now = log(tmp_path, said=said), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    now[0] = 1.0
    writer.append([("x",)], batch(1))
    writer.append([("x",)], batch(1))
    (tmp_path / "letters").unlink()
    writer.append([("x",)], batch(1))
    assert len(read(tmp_path)) == 0 and len(said) == 1 and "cannot be written" in said[0]
    now[0] = 100.0
    writer.append([("x",)], batch(1))
    assert len(read(tmp_path)) == 1
