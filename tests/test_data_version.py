"""Versions of data."""

import json
from pathlib import Path

from components.core.data_version import lock_stages


def test_the_lock_of_a_run_of_words_models_is_its_lineage(tmp_path):
    """Such a run has neither a corpus nor an encoder."""
    lock = {"stages": {"examples@t": {"cmd": "c", "outs": [{"path": "artifacts/examples/t", "md5": "1.dir"}]}}}
    (tmp_path / "dvc.lock").write_text(json.dumps(lock))
    assert lock_stages(tmp_path, out=Path("artifacts")) == lock["stages"]
    # Below the folder of another run it belongs to that one.
    assert lock_stages(tmp_path, out=Path("artifacts/examples")) == {}
