"""Versions of data, and what stages have read."""

import json
from pathlib import Path

from components.core.artifacts import writing
from components.core.data_version import as_read, lock_stages


def test_the_stage_unlabelled_has_read_the_domain_only_if_its_manifest_says_so(tmp_path):
    stage = {
        "deps": [{"path": "out/examples/task"}, {"path": "out/corpus/domain"}],
        "outs": [{"path": "out/metrics/unlabelled/task-bert.json"}, {"path": "out/unlabelled/task/bert"}],
    }
    name, output = "unlabelled@task-bert", tmp_path / "out/unlabelled/task/bert"
    assert as_read(name, stage, tmp_path) == stage  # not known
    for sources, read in (([], 1), (["task"], 1), (["task", "domain"], 2)):
        with writing(output, kind="unlabelled") as draft:
            draft.facts["sources"] = sources
        assert len(as_read(name, stage, tmp_path)["deps"]) == read
        assert as_read("tokenize@domain-word", stage, tmp_path) == stage


def test_the_lock_of_a_run_of_words_models_is_its_lineage(tmp_path):
    """Such a run has neither a corpus nor an encoder."""
    lock = {"stages": {"examples@t": {"cmd": "c", "outs": [{"path": "artifacts/examples/t", "md5": "1.dir"}]}}}
    (tmp_path / "dvc.lock").write_text(json.dumps(lock))
    assert lock_stages(tmp_path, out=Path("artifacts")) == lock["stages"]
    # Below the folder of another run it belongs to that one.
    assert lock_stages(tmp_path, out=Path("artifacts/examples")) == {}
