import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.artifacts import digest_tree
from components.core.errors import ArtifactError, DataError
from components.data.formats.lines import Reading
from components.data.ingestion.builtin import build, write_corpus, write_rows
from components.data.ingestion.readers import raw_files, read_documents, read_texts
from components.settings.data import CorpusSource, ParallelSource

# The real builder on two packages and a few services, in a separate process.
SCRIPT = """
import sys
from pathlib import Path
from components.data.ingestion.builtin import aws, build, docstrings
docstrings.PACKAGES = ("pluggy", "hypothesis")
models = sorted((aws.locate("botocore") / "botocore" / "data").glob("*/*/service-2.json.gz"))[::20]
aws.read_services = lambda: [aws.read_service(model.parts[-3], model) for model in models]
if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_hash_seed(tmp_path):
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / seed)]
        subprocess.run(command, env=environment, check=True, capture_output=True, cwd=Path(__file__).parents[3])
    assert digest_tree(tmp_path / "1") == digest_tree(tmp_path / "2")
    built = tmp_path / "1"
    assert sorted(path.relative_to(built).as_posix() for path in built.glob("*/*/*") if path.is_file()) == [
        "domain/aws/part-000.jsonl.zst",
        "parallel/aws/part-000.jsonl.zst",
        *(
            f"tasks/{task}/{split}.jsonl"
            for task in ("aws-code", "aws-operation", "aws-service", "aws-type")
            for split in ("dev", "test", "train")
        ),
    ]
    # The pipeline can read the files, and the texts of dev and test are not in the corpus.
    corpus = CorpusSource(path=str(built / "domain" / "aws"), id="id")
    lines = {
        line
        for path in raw_files(Path(corpus.path))[0]
        for _, text, _ in read_texts(path, corpus, Reading())
        for line in text.split("\n")
    }
    assert len(lines) > 1_000
    pairs = ParallelSource(path=str(built / "parallel" / "aws"), id="id")
    translated = {
        source: target
        for path in raw_files(Path(pairs.path))[0]
        for _, (source, target), _ in read_documents(path, pairs, Reading())
    }
    assert len(translated) > 100
    assert all(target == target.lower() and target for target in translated.values())
    for split in ("dev", "test"):
        texts = {json.loads(row)["text"] for row in (built / "tasks" / "aws-type" / f"{split}.jsonl").open()}
        assert texts
        assert not (lines | translated.keys()) & texts
        described = {json.loads(row)["second"] for row in (built / "tasks" / "aws-operation" / f"{split}.jsonl").open()}
        assert described
        assert not (lines | translated.keys()) & described


def test_a_folder_with_files_is_not_built(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\n")
    with pytest.raises(ArtifactError, match="contains files; delete it to make the built-in data anew"):
        build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_a_corpus_is_written_in_parts(tmp_path):
    documents = [{"id": str(n), "text": "x" * 400_000} for n in range(5)]
    assert write_corpus(tmp_path, documents, megabytes=1) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part-000.jsonl.zst", "part-001.jsonl.zst"]


def test_rows_are_json_lines(tmp_path):
    assert write_rows(tmp_path / "a" / "b.jsonl", [{"text": "é\n"}, {"text": "y"}]) == 2
    lines = (tmp_path / "a" / "b.jsonl").read_text().splitlines()
    assert lines[0] == '{"text": "é\\n"}'
    assert json.loads(lines[1]) == {"text": "y"}
    with pytest.raises(DataError, match=r"b\.jsonl: cannot be written \(.*\); choose another"):
        write_rows(tmp_path / "a" / "b.jsonl" / "b.jsonl", [])
