"""The variables of dvc.yaml: what it has to know of the settings, defaults included.

DVC reads params.yaml as it is, so keys that the file leaves out have no value there. `resolved.yaml`, next to dvc.yaml,
has the names and paths of the stages of a run. Commands write it when it differs; dvc.yaml loads it.

An input that a run does not have, such as the general corpus of an imported encoder, is replaced by another dependency
of the same stage, so that the stage has one dependency less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from components.artifacts import write_atomic
from components.masking import masked
from components.pipeline import jobs
from components.pipeline.jobs import out
from components.settings.names import BASELINES
from components.settings.params import Params

FILE: Final = "resolved.yaml"
#: Inputs of the stage `scratch`.
READ_BY_SCRATCH: Final = ("tokenizer", "tokens")
_HEAD: Final = """\
# Written by headstart from params.yaml, for dvc.yaml: the names and paths of the stages. Do not edit.
"""


def variables(params: Params) -> dict[str, Any]:
    """The variables of dvc.yaml."""

    def path(*parts: str) -> str:
        return out(params, *parts).as_posix()

    def own(stage: str, item: str) -> str:
        """The dependency that stands for an absent one."""
        return path("identity", stage, f"{item}.json")

    first = params.pretraining_corpus
    general, downstream = params.data.general is not None, params.downstream_vocabulary
    vocabularies, kinds = params.vocabularies, params.tokenizer.kinds

    def made(stage: str, item: str, folder: str, corpus: str, kind: str) -> str:
        """Tokens or vocabulary of a corpus."""
        return path(folder, f"{corpus}-{kind}") if corpus in vocabularies else own(stage, item)

    def documents(stage: str, item: str) -> str:
        """The domain corpus."""
        return path("corpus", "domain") if "domain" in params.corpora else own(stage, item)

    teachers = {name: {"teacher": settings.teacher} for name, settings in params.static.items()}
    parts = {name: {"of": list(settings.of)} for name, settings in params.stacked.items()}
    return {
        "out": params.run.out,
        "families": params.run.families,
        "tasks": params.run.tasks,
        "starts": params.run.starts,
        "labelled": {task: {"path": source.path} for task, source in params.data.tasks.items()},
        "collected": {
            item: {
                "source": path("examples", item) if job["unlabelled"] is None else job["unlabelled"].path,
            }
            for item, job in jobs.domain_texts(params).items()
        },
        "corpora": {name: {"path": source.path} for name, source in params.corpora.items()},
        "pairs": {name: {"path": source.path} for name, source in params.data.parallel.items()},
        "vocabularies": vocabularies,
        "kinds": kinds,
        "vocabulary": downstream,
        "tokenized": {
            f"{corpus}-{kind}": {
                "corpus": corpus,
                "own": path("tokenizer", f"{corpus}-{kind}"),
                "general": path("tokenizer", f"{first}-{kind}"),
            }
            for corpus in vocabularies
            for kind in kinds
        },
        "pretrained": {
            name: {
                "tokens": made("pretrain", name, "tokens", first, settings.tokenizer),
                "tokenizer": made("pretrain", name, "tokenizer", first, settings.tokenizer),
            }
            for name, settings in params.pretrain.items()
        },
        "adapted": {
            name: {
                "kind": kind,
                "general_tokens": path("tokens", f"general-{kind}") if general else own("adapt", name),
                "general": path("corpus", "general") if general else own("adapt", name),
            }
            for name in params.adapt
            if (kind := params.pretrain[name].tokenizer)
        },
        "untrained": {
            item: {
                **{key: own("scratch", item) if job[key] is None else job[key].as_posix() for key in READ_BY_SCRATCH},
                "output": job["output"].as_posix(),
            }
            for item, job in jobs.scratch(params).items()
        },
        "free": {
            f"{task}-{name}": {
                "task": task,
                "family": name,
                "corpus": documents("unlabelled", f"{task}-{name}"),
            }
            for task in params.run.tasks
            for name in [BASELINES]
        },
        "teachers": teachers,
        "adapted_teachers": {name: teachers[name] for name in jobs.static(params, "adapted")},
        "parts": parts,
        "adapted_parts": {name: parts[name] for name in jobs.stacked(params, "adapted")},
        "own_texts": list(params.adapt_task),
        "intermediate": params.intermediate_tasks,
        "groups": list(params.together),
        "students": list(params.distil),
        "distilled": {
            f"{task}-{group}": {
                "task": task,
                "group": group,
                "corpus": documents("distil-texts", f"{task}-{group}"),
            }
            for task in params.run.tasks
            for group in params.distil
        },
        "general": path("corpus", "general") if general else path("tokens"),
        "searched": {
            task: {"corpus": path("corpus") if params.corpora else own("leakage", task)} for task in params.run.tasks
        },
        "all_corpora": path("corpus") if params.corpora else path("examples"),
        "all_encoders": path("encoder") if params.run.families else path("examples"),
    }


def write_variables(params: Params, file: Path) -> bool:
    """Write the variables if they differ from the file; returns whether they did.

    Args:
        params: the settings.
        file: `resolved.yaml`, next to the dvc.yaml.
    """
    text = _HEAD + masked(yaml.safe_dump(variables(params), sort_keys=False, allow_unicode=True, width=120))
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return False
    write_atomic(file, text)
    return True
