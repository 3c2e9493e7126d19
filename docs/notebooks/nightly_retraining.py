# %% [markdown]
# # Nightly retraining
#
# A project that retrains itself: new rows arrive, the stages that they change run again, and the served model is
# replaced only by one that is significantly better. Everything is done by commands.
#
# `HEADSTART_NOTEBOOK=quick` leaves out the runs themselves, which take minutes.

# %%
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

import components

QUICK = os.environ.get("HEADSTART_NOTEBOOK") == "quick"
REPOSITORY = Path(components.__file__).parents[1]
project = Path(tempfile.mkdtemp(prefix="nightly-"))


def run(*words: str) -> str:
    """Run a command in the project and return what it prints."""
    paths = os.pathsep.join((str(REPOSITORY), os.environ.get("PYTHONPATH", "")))
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PYTHONPATH": paths, "PATH": programs}
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True)
    print(f"$ {' '.join(words)}\n{(done.stdout + done.stderr).strip()}\n")
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def headstart(*words: str) -> str:
    """Run a command of Headstart."""
    return run(sys.executable, "-m", "components.cli", *words)


# %% [markdown]
# A project is a git repository with the settings and the data. A run writes the pipeline (`dvc.yaml`) from them.

# %%
shutil.copy(REPOSITORY / "requirements.lock", project / "requirements.lock")
for name in ("components", "flows"):
    (project / name).symlink_to(REPOSITORY / name)
chance = random.Random(0)
WORDS = {"good": ["great", "lovely", "fine"], "bad": ["awful", "poor", "broken"]}


def reviews(first: int, rows: int) -> str:
    """Labelled rows as jsonl."""
    lines = []
    for number in range(first, first + rows):
        label = chance.choice(sorted(WORDS))
        text = f"review {number}: a {chance.choice(WORDS[label])} {chance.choice(['film', 'book', 'song'])}"
        lines.append(json.dumps({"text": text, "label": label}) + "\n")
    return "".join(lines)


tasks = project / "data" / "tasks" / "reviews"
tasks.mkdir(parents=True)
(tasks / "train.jsonl").write_text(reviews(0, 40))
(tasks / "test.jsonl").write_text(reviews(1000, 40))
settings = {
    "run": {"tasks": ["reviews"], "families": []},
    "cluster": {"launcher": "local"},
    "data": {
        "tasks": {"reviews": {"path": "data/tasks/reviews", "dev": None, "budgets": [8], "seeds": [0], "folds": 2}}
    },
}
(project / "params.yaml").write_text(yaml.safe_dump(settings))
run("git", "init", "--quiet")
run(sys.executable, "-m", "dvc", "init", "--quiet")

# %% [markdown]
# The settings and the data are checked before anything runs; the plan says what would run, and why.

# %%
headstart("check")

# %%
if not QUICK:
    headstart("plan")
    headstart("retrain")
    headstart("champion")

# %% [markdown]
# The next night: 20 new rows. The check compares them with the accepted version of the data, the stages that read them
# run again, and `promote` decides. The new model learns from another sample of eight labels a class. It is not better
# on the test rows, so the first one is still served.

# %%
(tasks / "train.jsonl").write_text((tasks / "train.jsonl").read_text() + reviews(40, 20))
headstart("check")
if not QUICK:
    headstart("retrain")
    headstart("champion", "--history")

# %% [markdown]
# Unattended: `headstart schedule --cron "0 3 * * *"` retrains every night, `headstart sync` also pulls and commits, and
# `headstart schedule --notify` reports failures (`docs/operations.md`).
