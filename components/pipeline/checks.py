"""Checks before a run: of the settings that need models, kinds of task and files, and of the data."""

import filecmp
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from components.core.artifacts import digest_files
from components.core.errors import ConfigError, HeadstartError, nearest
from components.data.checks import record
from components.data.checks import stage as data_checks
from components.data.tasks.reading.labels import files_of
from components.pipeline.jobs import PAIRS_KIND, PARALLEL, WHOLE
from components.pipeline.stages import STAGES
from components.settings.detection import exists
from components.settings.imports import is_local_copy
from components.settings.loading import placed, resolve, valid_tasks
from components.settings.params import Params
from components.settings.tasks import OF_ONE_TEXT, SPLITS, TaskSource
from components.settings.tokenizer import SubwordSettings
from components.settings.training import PretrainSettings


def check_params(params: Params) -> None:
    """Check model sizes, published models, kinds of task, names of metrics, folders and files.

    Raises:
        ConfigError: lists every problem.
    """
    # Without encoders, torch is not imported.
    of_encoders = (_models, _finetuning, _distillation) if params.pretrain else ()
    subjects = (*of_encoders, _vocabularies, _joint_training, _tasks, _files)
    problems = [problem for find in subjects for problem in find(params)]
    if problems:
        raise ConfigError.listing(problems)


def changed_originals(params: Params, folder: Path) -> Iterator[str]:
    """Labelled files beside the settings that differ from the copies of them from which tasks learn."""
    for source in params.data.tasks.values():
        for name in (name for split in SPLITS for name in source.files(split)):
            original, copy = folder / name, Path(source.path) / name
            if original.is_file() and copy.is_file() and not filecmp.cmp(original, copy, shallow=False):
                yield f"{original}: differs from its copy {copy}, which is read; headstart fit {name} takes the new one"


def check_file(path: Path, *, accept: str = "") -> Iterator[str]:
    """Check a settings file and its data; yields one line per finding. With problems of the settings, the data of the
    tasks whose own keys have none are checked too.

    Raises:
        ConfigError: lists every problem of the settings and of the data.
    """
    problems: list[str] = []

    def collected(error: HeadstartError, computed: Mapping[str, str]) -> None:
        several = error.problems or [str(error)]
        problems.extend(placed(several, path, computed) if isinstance(error, ConfigError) else several)

    computed: Mapping[str, str] = {}
    try:
        loaded, completed = resolve(path)
        computed = completed.reasons
    except ConfigError as error:
        if not error.problems:
            raise
        problems.extend(error.problems)
        if (valid := valid_tasks(path)) is None:
            raise
        loaded = valid
    try:
        check_params(loaded)
    except ConfigError as error:
        collected(error, computed)
    if not problems:
        yield f"{path}: ok"
        yield from changed_originals(loaded, path.parent)
        yield from check_new_data(loaded, accept=accept)
        return
    if tasks := {name: source for name, source in loaded.data.tasks.items() if not any(_task(name, source))}:
        job = data_checks.ChecksJob(**STAGES["checks"].items(loaded)[WHOLE])
        try:
            data_checks.check_data(job.model_copy(update={"tasks": tasks, "corpora": {}}))
        except HeadstartError as error:
            collected(error, computed)
    raise ConfigError.listing(problems, where=str(path))


def _models(params: Params) -> Iterator[str]:
    import torch

    from components.models import FAMILIES
    from components.models.encoder import build_model

    for name, settings in params.pretrain.items():
        family, parallel = settings.family or name, settings.tokenizer == PARALLEL
        try:
            with torch.device("meta"):
                build_model(
                    family,
                    vocabulary=1000,
                    preset=settings.preset,
                    settings=settings.model,
                    tokenizer=PAIRS_KIND if parallel else settings.tokenizer,
                )
        except ConfigError as error:
            yield f"pretrain.{name}: {error.what}"
        if family in FAMILIES and (FAMILIES[family].objective == "translation") != parallel:
            needed = "text, not on pairs" if parallel else "pairs; set it to parallel"
            yield f"pretrain.{name}.tokenizer: {settings.tokenizer} does not fit; {family} is trained on {needed}"
        if settings.tokenizer == "char" and settings.model.get("static") and settings.vectors is None:
            yield f"pretrain.{name}.model.static: a model of characters needs a file of words; set vectors"
        if settings.vectors is not None:
            file = Path(settings.vectors)
            if settings.source is not None:
                yield f"pretrain.{name}.vectors: the source has its own embeddings; remove one of both"
            elif not file.is_file():
                yield f"pretrain.{name}.vectors: {file} does not exist"
            elif (digest := digest_files([file])) != settings.vectors_digest:
                yield f"pretrain.{name}.vectors_digest: {settings.vectors_digest}, but {file} has {digest}"
        if settings.source is not None:
            yield from _source(name, family, settings)


def _source(name: str, family: str, settings: PretrainSettings) -> Iterator[str]:
    """The problems of a block with a published model."""
    from components.interchange.importing import source_digest
    from components.interchange.published import fixed_keys
    from components.models import FAMILIES

    if settings.preset:
        yield f"pretrain.{name}.preset: the source determines the sizes of the model; remove it"
    if family in FAMILIES and (fixed := fixed_keys(family, settings.model)):
        free = ", ".join(FAMILIES[family].config.of_training()) or "none"
        yield (
            f"pretrain.{name}.model: the source determines {', '.join(fixed)}; remove them (keys beside a source: "
            f"{free})"
        )
    with _refused(f"pretrain.{name}.source: ") as refused:
        digest = source_digest(Path(str(settings.source)))
        if settings.digest is not None and digest != settings.digest:
            yield f"pretrain.{name}.digest: {settings.digest}, but {settings.source} has {digest}"
    yield from refused


def _vocabularies(params: Params) -> Iterator[str]:
    from components.tokenization.published import published_tokenizer

    for kind in params.tokenizer.kinds:
        published = getattr(params.tokenizer, kind, None)
        if isinstance(published, SubwordSettings) and published.source is not None:
            with _refused(f"tokenizer.{kind}.source: ") as refused:
                published_tokenizer(Path(published.source), kind=kind, digest=published.digest)
            yield from refused


def _finetuning(params: Params) -> Iterator[str]:
    from components.learners.task_models.kinds import TASKS
    from components.learners.ways import refuse
    from components.models import FAMILIES

    kinds = {task: params.data.tasks[task].kind for task in params.run.tasks}
    for name in params.run.families:
        block, settings = params.block(name), params.finetune[name]
        assert block is not None  # the names are checked when the settings are loaded
        family = block.family
        objective = FAMILIES[family].objective if family in FAMILIES else "causal"
        if settings.lm_weight and (objective != "causal" or family in ("elmo", "flair")):
            yield f"finetune.{name}.lm_weight: {family} has no causal model of whole texts; set it to 0"
        if params.adapt_task and block.tokenizer == PARALLEL:
            yield f"adapt_task: {name} is trained on pairs, which tasks do not contain; remove it from run.families"
        if params.together and settings.method not in ("finetune", "auto"):
            yield f"finetune.{name}.method: joint training of tasks (`together`) requires finetune or auto"
        for task, kind in kinds.items():
            if kind in TASKS and (problem := refuse(TASKS[kind], settings)):
                yield f"finetune.{name}: {problem} ({task})"


def _distillation(params: Params) -> Iterator[str]:
    from components.learners.task_models.base import refuse_distillation
    from components.learners.task_models.kinds import TASKS

    kinds = {task: params.data.tasks[task].kind for task in params.run.tasks}
    for group, distilled in params.distil.items():
        systems = (*distilled.teachers, *distilled.students)
        named = [
            name
            for name in sorted(params.run.families)
            if any(f"{name}-{start}" in systems for start in params.run.starts)
        ]
        for task, kind in kinds.items():
            if distilled.source != "task" and kind not in OF_ONE_TEXT:
                yield (
                    f"distil.{group}.source: {distilled.source!r} includes documents, and a row of {task} ({kind}) is "
                    "not one text; use task"
                )
            for name in named if kind in TASKS else ():
                if (problem := refuse_distillation(TASKS[kind], params.finetune[name])) is not None:
                    yield f"distil.{group}: {task}, {name}: {problem}"


def _joint_training(params: Params) -> Iterator[str]:
    from components.data.tasks.budgets import numbered, refuse_unpaired

    for group, shared in params.together.items():
        sources = {task: params.data.tasks[task] for task in shared.tasks}
        with _refused() as refused:
            refuse_unpaired(
                group,
                budgets={task: numbered(source.budgets) for task, source in sources.items()},
                seeds={task: source.seeds for task, source in sources.items()},
            )
        yield from refused


def _tasks(params: Params) -> Iterator[str]:
    from components.data.tasks.kinds import KINDS, promotion_metrics

    metric = params.promote.metric
    for task in params.run.tasks:
        source = params.data.tasks[task]
        yield from _task(task, source)
        if metric is not None and source.kind in KINDS and metric not in (choices := promotion_metrics(source.kind)):
            yield f"promote.metric: {metric!r} is not a metric of {task} ({source.kind}){nearest(metric, choices)}"


def _task(task: str, source: TaskSource) -> Iterator[str]:
    """The problems of a task's own keys."""
    from components.data.tasks.kinds import find_kind

    key = f"data.tasks.{task}"
    with _refused() as problems:
        find_kind(source.kind, key=f"{key}.kind")
    yield from [*problems, *_missing(key, Path(source.path))]
    for split in SPLITS if Path(source.path).exists() else ():
        files = files_of(task, source, split)
        yield from (f"{key}.{split}: {file} does not exist" for file, _ in files if not exists(file))


@contextmanager
def _refused(prefix: str = "") -> Iterator[list[str]]:
    """A block whose error becomes a problem of the list."""
    problems: list[str] = []
    try:
        yield problems
    except HeadstartError as error:
        problems.append(f"{prefix}{error}")


def _files(params: Params) -> Iterator[str]:
    for key, source in params.data.sources.items():
        if not isinstance(source, TaskSource):
            yield from _missing(f"data.{key}", Path(source.path))


def _missing(key: str, path: Path) -> Iterator[str]:
    if not path.exists():
        yield (
            f"{key}.path: {path} does not exist; `headstart retrain` imports it from its address"
            if is_local_copy(path.as_posix())
            else f"{key}.path: {path} does not exist; `headstart data` makes the built-in data, or put your own files "
            "there"
        )


def check_new_data(params: Params, *, accept: str = "") -> Iterator[str]:
    """Compare the data with the last accepted version; yields one line per finding, and a summary.

    Args:
        accept: reason for accepting the data in spite of all violations; empty: they are not accepted.

    Raises:
        DataError: the data are invalid, or violate a rule `stop` and are not accepted.
    """
    job = data_checks.ChecksJob(**STAGES["checks"].items(params)[WHOLE])
    checked = data_checks.check_data(job)
    if accept:
        recorded = record.accept(Path(job.settings.record), checked, reason=accept)
        yield from (f"accepted: {finding}" for entry in checked for finding in entry.findings)
        names = ", ".join(recorded) or "nothing new"
        yield f"{job.settings.record}: {names} accepted ({accept}); commit the file"
        return
    data_checks.refuse(checked)
    yield from (f"warning: {finding}" for entry in checked if entry.accepted is None for finding in entry.findings)
    for entry in checked:
        before, rows = entry.before, entry.statistics["rows"]
        if entry.accepted is None and before is not None:
            yield f"{entry.name}: {rows:,} rows, {before['statistics']['rows']:,} before"
    if all(entry.before is None and entry.accepted is None for entry in checked):
        yield "data: ok; there is no earlier version to compare with"
    else:
        yield f"data: ok; {len(checked)} inputs compared with their last accepted versions"
