"""Checks before a run: of the settings that need models, kinds of task and files, and of the data."""

import filecmp
from collections.abc import Iterator, Mapping
from pathlib import Path

from components.core.artifacts import digest_files
from components.core.errors import ConfigError, HeadstartError, nearest
from components.data.checks import stage as data_checks
from components.data.tasks.reading.labels import files_of
from components.pipeline.jobs import CORPORA, PAIRS_KIND, PARALLEL, WHOLE
from components.pipeline.jobs.corpora import checks as checks_of
from components.settings.detection import exists
from components.settings.imports import FOLDER
from components.settings.loading import placed, resolve, valid_tasks
from components.settings.params import Params
from components.settings.tasks import OF_ONE_TEXT, SPLITS
from components.settings.tokenizer import SubwordSettings


def check_params(params: Params) -> None:
    """Check model sizes, published models, kinds of task, names of metrics, folders and files.

    Raises:
        ConfigError: lists every problem.
    """
    # Without encoders, torch is not imported.
    of_encoders = (_models, _finetuning, _ways, _distillation) if params.pretrain else ()
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
    missing = {task for task in loaded.run.tasks if any(f"data.tasks.{task}." in problem for problem in problems)}
    if tasks := {name: source for name, source in loaded.data.tasks.items() if name not in missing}:
        job = data_checks.ChecksJob(**checks_of(loaded)[WHOLE])
        try:
            data_checks.check_data(job.model_copy(update={"tasks": tasks, "corpora": {}}))
        except HeadstartError as error:
            collected(error, computed)
    raise ConfigError.listing(problems, where=str(path))


def _models(params: Params) -> list[str]:
    import torch

    from components.interchange.importing import source_digest
    from components.interchange.published import fixed_keys
    from components.models import FAMILIES
    from components.models.encoder import build_model

    problems: list[str] = []
    for name, settings in params.pretrain.items():
        family = settings.family or name
        try:
            with torch.device("meta"):
                build_model(
                    family,
                    vocabulary=1000,
                    preset=settings.preset,
                    settings=settings.model,
                    tokenizer=PAIRS_KIND if settings.tokenizer == PARALLEL else settings.tokenizer,
                )
        except ConfigError as error:
            problems.append(f"pretrain.{name}: {str(error).removeprefix(f'{family}: ')}")
        if family in FAMILIES and (FAMILIES[family].objective == "translation") != (settings.tokenizer == PARALLEL):
            needed = "text, not on pairs" if settings.tokenizer == PARALLEL else "pairs; set it to parallel"
            problems.append(
                f"pretrain.{name}.tokenizer: {settings.tokenizer} does not fit; {family} is trained on {needed}"
            )
        if settings.tokenizer == "char" and settings.model.get("static") and settings.vectors is None:
            problems.append(f"pretrain.{name}.model.static: a model of characters needs a file of words; set vectors")
        if settings.vectors is not None:
            if settings.source is not None:
                problems.append(f"pretrain.{name}.vectors: the source has its own embeddings; remove one of both")
            elif not Path(settings.vectors).is_file():
                problems.append(f"pretrain.{name}.vectors: {settings.vectors} does not exist")
            elif (digest := digest_files([Path(settings.vectors)])) != settings.vectors_digest:
                problems.append(
                    f"pretrain.{name}.vectors_digest: {settings.vectors_digest}, but {settings.vectors} has {digest}"
                )
        if settings.source is None:
            continue
        if settings.preset:
            problems.append(f"pretrain.{name}.preset: the source determines the sizes of the model; remove it")
        if family in FAMILIES and (fixed := fixed_keys(family, settings.model)):
            free = ", ".join(FAMILIES[family].config.of_training()) or "none"
            problems.append(
                f"pretrain.{name}.model: the source determines {', '.join(fixed)}; remove them (keys beside a source: "
                f"{free})"
            )
        try:
            digest = source_digest(Path(settings.source))
            if settings.digest is not None and digest != settings.digest:
                problems.append(f"pretrain.{name}.digest: {settings.digest}, but {settings.source} has {digest}")
        except HeadstartError as error:
            problems.append(f"pretrain.{name}.source: {error}")
    return problems


def _vocabularies(params: Params) -> list[str]:
    from components.tokenization.published import published_tokenizer

    problems: list[str] = []
    for kind in params.tokenizer.kinds:
        published = getattr(params.tokenizer, kind, None)
        if isinstance(published, SubwordSettings) and published.source is not None:
            try:
                published_tokenizer(Path(published.source), kind=kind, digest=published.digest)
            except HeadstartError as error:
                problems.append(f"tokenizer.{kind}.source: {error}")
    return problems


def _finetuning(params: Params) -> list[str]:
    from components.models import FAMILIES

    problems: list[str] = []
    for name in params.run.families:
        block = params.block(name)
        assert block is not None  # the names are checked when the settings are loaded
        family = block.family
        objective = FAMILIES[family].objective if family in FAMILIES else "causal"
        if params.finetune[name].lm_weight and (objective != "causal" or family in ("elmo", "flair")):
            problems.append(f"finetune.{name}.lm_weight: {family} has no causal model of whole texts; set it to 0")
        if params.adapt_task and block.tokenizer == PARALLEL:
            problems.append(
                f"adapt_task: {name} is trained on pairs, which tasks do not contain; remove it from run.families"
            )
        if params.together and params.finetune[name].method not in ("finetune", "auto"):
            problems.append(f"finetune.{name}.method: joint training of tasks (`together`) requires finetune or auto")
    return problems


def _ways(params: Params) -> list[str]:
    from components.learners.task_models.kinds import TASKS
    from components.learners.ways import refuse

    kinds = {task: params.data.tasks[task].kind for task in params.run.tasks}
    return [
        f"finetune.{name}: {problem} ({task})"
        for task, kind in kinds.items()
        for name in params.run.families
        if kind in TASKS and (problem := refuse(TASKS[kind], params.finetune[name]))
    ]


def _distillation(params: Params) -> list[str]:
    from components.learners.task_models.base import refuse_distillation
    from components.learners.task_models.kinds import TASKS

    problems: list[str] = []
    for group, distilled in params.distil.items():
        kinds = {task: params.data.tasks[task].kind for task in params.run.tasks}
        problems += [
            f"distil.{group}.source: {distilled.source!r} includes documents, and a row of {task} ({kind}) is not one "
            "text; use task"
            for task, kind in kinds.items()
            if distilled.source != "task" and kind not in OF_ONE_TEXT
        ]
        named = {
            name
            for name in params.run.families
            for start in params.run.starts
            if f"{name}-{start}" in (*distilled.teachers, *distilled.students)
        }
        problems += [
            f"distil.{group}: {task}, {name}: {problem}"
            for task, kind in kinds.items()
            if kind in TASKS
            for name in sorted(named)
            if (problem := refuse_distillation(TASKS[kind], params.finetune[name])) is not None
        ]
    return problems


def _joint_training(params: Params) -> list[str]:
    from components.data.tasks.budgets import numbered, refuse_unpaired

    problems: list[str] = []
    for group, shared in params.together.items():
        sources = {task: params.data.tasks[task] for task in shared.tasks}
        try:
            refuse_unpaired(
                group,
                budgets={task: numbered(source.budgets) for task, source in sources.items()},
                seeds={task: source.seeds for task, source in sources.items()},
            )
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _tasks(params: Params) -> list[str]:
    from components.data.tasks.kinds import find_kind, promotion_metrics

    problems: list[str] = []
    metric = params.promote.metric
    for task in params.run.tasks:
        kind = params.data.tasks[task].kind
        try:
            find_kind(kind, key=f"data.tasks.{task}.kind")
            if metric is not None and metric not in (choices := promotion_metrics(kind)):
                problems.append(
                    f"promote.metric: {metric!r} is not a metric of {task} ({kind}){nearest(metric, choices)}"
                )
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _files(params: Params) -> list[str]:
    problems: list[str] = []
    texts = {corpus: getattr(params.data, corpus) for corpus in CORPORA}
    texts |= {f"unlabelled.{number}": source for number, source in enumerate(params.data.unlabelled)}
    folders = {f"data.{corpus}.path": source.path for corpus, source in texts.items() if source is not None}
    folders |= {f"data.parallel.{corpus}.path": source.path for corpus, source in params.data.parallel.items()}
    folders |= {f"data.tasks.{task}.path": params.data.tasks[task].path for task in params.run.tasks}
    problems += [
        f"{key}: {path} does not exist; `headstart retrain` imports it from its address"
        if Path(path).parts[:1] == (FOLDER,)
        else f"{key}: {path} does not exist; `headstart data` makes the built-in data, or put your own files there"
        for key, path in folders.items()
        if not Path(path).exists()
    ]
    problems += [
        f"data.tasks.{task}.{split}: {path} does not exist"
        for task in params.run.tasks
        if Path((source := params.data.tasks[task]).path).exists()
        for split in SPLITS
        for path, _ in files_of(task, source, split)
        if not exists(path)
    ]
    return problems


def check_new_data(params: Params, *, accept: str = "") -> Iterator[str]:
    """Compare the data with the last accepted version; yields one line per finding, and a summary.

    Args:
        accept: reason for accepting the data in spite of all violations; empty: they are not accepted.

    Raises:
        DataError: the data are invalid, or violate a rule `stop` and are not accepted.
    """
    job = data_checks.ChecksJob(**checks_of(params)[WHOLE])
    checked = data_checks.check_data(job)
    if accept:
        recorded = data_checks.accept(job, checked, reason=accept)
        yield from (f"accepted: {finding}" for entry in checked for finding in entry.findings)
        names = ", ".join(recorded) or "nothing new"
        yield f"{job.settings.record}: {names} accepted ({accept}); commit the file"
        return
    data_checks.refuse(checked)
    yield from (f"warning: {finding}" for entry in checked if entry.accepted is None for finding in entry.findings)
    for entry in checked:
        before = None if entry.before is None else entry.before.measured()
        if entry.accepted is None and before is not None:
            yield f"{entry.unit.name}: {entry.unit.statistics.rows:,} rows, {before.rows:,} before"
    first = sum(entry.before is None and entry.accepted is None for entry in checked)
    compared = f"{len(checked)} inputs compared with their last accepted versions" if first < len(checked) else ""
    yield f"data: ok; {compared or 'there is no earlier version to compare with'}"
