"""Whether a Prefect server is configured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

IS_CONFIGURED = "import sys; from flows.server import has_server; print(has_server(), 'prefect' in sys.modules)"
PROFILES = """
active = "quick"
[profiles.quick]
[profiles.team]
PREFECT_API_URL = "http://prefect.example/api"
"""


@pytest.mark.parametrize(
    ("variables", "profiles", "found"),
    [
        ({}, "", "False False"),
        ({"PREFECT_API_URL": "http://prefect.example/api"}, "", "True False"),
        ({}, PROFILES, "False True"),
        ({}, PROFILES.replace('active = "quick"', 'active = "team"'), "True True"),
        ({"PREFECT_PROFILE": "team"}, PROFILES, "True True"),
        # Prefect reads no profile without the file.
        ({"PREFECT_PROFILE": "local"}, "", "False False"),
    ],
)
def test_a_server_may_be_configured_in_a_profile(tmp_path, variables, profiles, found):
    if profiles:
        (tmp_path / "profiles.toml").write_text(profiles)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", IS_CONFIGURED],
        env={**ours, **variables, "PREFECT_HOME": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == found
