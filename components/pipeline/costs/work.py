"""The amount of work of a stage, known before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.artifacts import read_json
from components.pipeline.jobs import PARALLEL
from components.pipeline.stages import STAGES, TRAINING
from components.settings.params import Params
from components.settings.training import LanguageModelTraining

#: Stages whose work grows with the number of label budgets and seeds.
OF_TASKS = TRAINING | {"baseline", "evaluate", "share"}


@dataclass(frozen=True)
class Work:
    """An amount of work: `tokens` of training, `bytes` of raw data, `runs` of a task, `seconds`, or one `run`."""

    amount: float
    unit: str


def work_of(stage: str, params: Params, *, root: Path) -> Work:
    """The work of a stage, such as `pretrain@ulmfit`.

    Args:
        stage: as in dvc.yaml.
        params: the settings.
        root: of the repository, to which the paths of the data are relative.
    """
    group, _, item = stage.partition("@")
    arguments: Mapping[str, Any] = STAGES[group].items(params).get(item, {}) if group in STAGES else {}
    if not arguments:
        return Work(1, "run")
    training = arguments.get("training")
    if training is not None and not arguments.get("source") and "epochs" not in arguments:
        if training.tokens is not None:
            return Work(_tokens(training, arguments["tokens"], root), "tokens")
        return Work(training.seconds, "seconds")
    if paths := _raw(group, arguments, params):
        return Work(sum(_size(root / path) for path in paths), "bytes")
    if group in OF_TASKS and (tasks := _tasks(arguments)):
        sources = [params.data.tasks[task] for task in tasks if task in params.data.tasks]
        return Work(sum(len(source.budgets) * len(source.seeds) for source in sources) or 1, "runs")
    return Work(1, "run")


def _tokens(training: LanguageModelTraining, text: Path | None, root: Path) -> float:
    """Tokens of a training: its budget, at most the tokens of `training.passes` if the text is tokenized already."""
    assert training.tokens is not None
    if training.passes is None or text is None:
        return training.tokens
    counts = read_json(root / text / "metrics.json", made_by="the stage tokenize", missing_ok=True).get("train")
    return training.tokens if counts is None else min(training.tokens, training.passes * counts["tokens"])


def _raw(group: str, arguments: Mapping[str, Any], params: Params) -> list[str]:
    """Paths of the raw data that a stage reads, directly or as a corpus."""
    if group in ("ingest", "ingest-parallel", "examples"):
        return [arguments["source"].path]
    if group == "domain-texts":
        source = arguments["unlabelled"] or params.data.tasks[arguments["name"]]
        return [source.path]
    if group == "checks":
        return [source.path for sources in (arguments["corpora"], arguments["tasks"]) for source in sources.values()]
    corpora = {name: source.path for name, source in params.corpora.items()}
    corpora |= {f"{name}-{PARALLEL}": source.path for name, source in params.data.parallel.items()}
    return [corpora[name] for name in [Path(str(arguments.get("corpus", ""))).name] if name in corpora]


def _tasks(arguments: Mapping[str, Any]) -> list[str]:
    examples = arguments.get("examples")
    if isinstance(examples, Mapping):
        return list(examples)
    return [Path(examples).name] if isinstance(examples, Path) else []


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else 0
