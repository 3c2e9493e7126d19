"""Versions of data, and what stages have read."""

from components.core.artifacts import writing
from components.core.data_version import as_read


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
