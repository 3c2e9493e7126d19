"""Loading of saved models, models of a run, and registered models."""

from pathlib import Path

from components.core.artifacts import MANIFEST, json_of, read_json, read_manifest
from components.core.errors import ArtifactError, extras, nearest
from components.learners.prediction import input_columns
from components.registry.explain import CLASSIFIER, FROZEN_CLASSIFIER, results_of
from components.settings.loading import load_params
from components.settings.systems import System
from headstart.fitting import CHOSEN, candidates_of
from headstart.model import KIND, Model
from headstart.tables import InputError, path_of

#: File of the stage `register`.
REGISTERED = "registered.json"


@extras()
def load(source: str | Path, *, task: str | None = None, params: str | Path = "params.yaml") -> Model:
    """Load a model.

    Args:
        source: a folder: a saved model, a classifier of a run, the `folder` of a fit, or a run's folder (`run.out`), of
            which the challenger of the stage `register` is used, or without one the model with the best score of
            selection; or the name of a task, whose registered champion is loaded, or `TASK/NUMBER` for a version.
        task: of a run with several tasks.
        params: settings file with the section `registry`, for registered models.

    Raises:
        ArtifactError: the folder holds no model, or its files were altered.
        RegistryError: the registry cannot be reached, or has no such model.
    """
    folder = path_of("source", source)
    if folder.is_dir():
        if (folder / MANIFEST).is_file():
            kind = read_manifest(folder).kind
            if kind != KIND:
                raise ArtifactError(f"{folder}: holds an output of another kind ({kind}), expected a classifier")
            return _of_run(folder)
        if (folder / CHOSEN / MANIFEST).is_file():
            return Model(folder / CHOSEN)  # the working folder of a fit
        # A task may have the name of another folder, such as `data`.
        settings, name = path_of("params", params), str(source).partition("/")[0]
        if (folder / "finetuned").is_dir() or not settings.is_file() or name not in load_params(settings).data.tasks:
            return _of_run(_best_of_run(folder, task))
    if folder.is_absolute() or str(source).startswith("."):
        raise ArtifactError(f"{folder}: does not exist; name a folder, or a task whose champion is registered")
    return _registered(str(source), path_of("params", params))


def _of_run(folder: Path) -> Model:
    """The classifier of a folder, RUN/finetuned/TASK/SYSTEM/PART for one of a run, which has recorded the columns of
    the labelled data."""
    _, task, _, run, *_ = *folder.absolute().parents, *[Path()] * 4
    path = run / "identity" / "examples" / f"{task.name}.json"
    recorded = read_json(path, made_by="the stage identity", missing_ok=True).get("settings", {})
    keys = {key.rpartition(".")[2]: value for key, value in recorded.items()}
    return Model(folder, columns=input_columns(keys["kind"], keys) if keys else None)


def _best_of_run(run: Path, task: str | None) -> Path:
    """The challenger of a task; before `register` has run, the best classifier, of equal ones the cheapest."""
    results = run / "finetuned"
    tasks = sorted(path.name for path in results.iterdir() if path.is_dir()) if results.is_dir() else []
    if not tasks:
        raise ArtifactError(f"{run}: neither a saved model nor the folder of a run (it has no folder `finetuned`)")
    if task is None and len(tasks) > 1:
        raise InputError(f"task: {run} has several; choose one of {', '.join(tasks)}")
    name = task or tasks[0]
    if name not in tasks:
        raise InputError(f"task: {run} has no task {name!r}{nearest(str(name), tasks)}")
    listing = read_json(run / "registry" / REGISTERED, made_by="the stage register", missing_ok=True)
    if (challenger := listing.get("challengers", {}).get(name)) is not None:
        system = str(challenger["system"])
        part = FROZEN_CLASSIFIER if System.named(system).frozen else CLASSIFIER
        if (directory := results_of(results / name, system) / part).is_dir():
            return directory
    folders = sorted((results / name).iterdir(), key=lambda path: (path.name != "baselines", path.name))
    collected = [
        (candidate.score, -candidate.cost, candidate.directory)
        for output in folders
        if (output / "runs.json").is_file()
        for candidate in candidates_of(output, json_of(output / "runs.json"))
    ]
    if not collected:
        raise ArtifactError(f"{results / name}: holds no classifier; run the stages baseline or finetune")
    return max(collected, key=lambda entry: entry[:2])[2]


def _registered(name: str, params: Path) -> Model:
    from components.registry.champion import fetched_champion

    settings = load_params(params)
    task, _, number = name.partition("/")
    source = settings.data.tasks.get(task)
    with fetched_champion(settings.registry, task, number=number) as (_, bundle):
        return Model(bundle, columns=None if source is None else input_columns(source.kind, vars(source)))
