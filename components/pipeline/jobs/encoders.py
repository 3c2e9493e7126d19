"""Jobs of the stages that make encoders."""

from pathlib import Path

from components.pipeline.jobs import PARALLEL, Arguments, out
from components.pipeline.jobs.corpora import judged
from components.settings.params import Params
from components.settings.section import VECTORS
from components.settings.systems import TASK_ADAPTED
from components.settings.training import PretrainSettings


def pretrain(params: Params) -> dict[str, Arguments]:
    """Pretrains a language model on general text."""
    return {
        name: {
            "name": name,
            "family": settings.family or name,
            "tokens": _of(params, "tokens", params.pretraining_corpus, settings.tokenizer),
            "tokenizer": _of(params, "tokenizer", params.pretraining_corpus, settings.tokenizer),
            "output": out(params, "encoder", name, "pretrained"),
            **_model(settings),
            **_vectors(settings),
            "training": settings.training,
            "seed": params.run.seed,
            "cluster": params.cluster,
        }
        for name, settings in params.pretrain.items()
    }


def _model(settings: PretrainSettings) -> Arguments:
    return {key: getattr(settings, key) for key in ("preset", "model", "source", "digest")}


def _vectors(settings: PretrainSettings) -> Arguments:
    return {"vectors": settings.vectors, "vectors_digest": settings.vectors_digest}


def adapt(params: Params) -> dict[str, Arguments]:
    """Continues pretraining on the domain's text, or on what was added to it."""
    return {
        name: {
            "name": name,
            "family": params.pretrain[name].family or name,
            "pretrained": out(params, "encoder", name, "pretrained"),
            "tokens": out(params, "tokens", f"domain-{kind}"),
            "tokenizer": out(params, "tokenizer", f"{params.downstream_vocabulary}-{kind}"),
            "general_tokens": _of(params, "tokens", "general", kind),
            "general_corpus": None
            if params.data.general is None
            else out(params, "corpus", "general-parallel" if kind == PARALLEL else "general"),
            "output": out(params, "encoder", name, "adapted"),
            "training": settings.training,
            "increment": settings.increment,
            **(_vectors(params.pretrain[name]) if params.pretrain[name].model.get("static") else {}),
            "seed": params.run.seed,
            "cluster": params.cluster,
        }
        for name, settings in params.adapt.items()
        if (kind := params.pretrain[name].tokenizer)
    }


def task_tokens(params: Params) -> dict[str, Arguments]:
    """Writes a task's texts, without labels, as memory-mapped token shards."""
    return {
        f"{task}-{kind}": {
            "examples": out(params, "examples", task),
            "judged": judged(params),
            "tokenizer": out(params, "tokenizer", f"{params.downstream_vocabulary}-{kind}"),
            "output": out(params, "task-tokens", task, kind),
        }
        for task in params.adapt_task
        for kind in params.tokenizer.kinds
    }


def adapt_task(params: Params) -> dict[str, Arguments]:
    """Continues pretraining of the adapted model on a task's texts."""
    collected: dict[str, Arguments] = {}
    for task, settings in params.adapt_task.items():
        for name in params.run.families:
            adapted = adapt(params)[name]
            kind = params.pretrain[name].tokenizer
            collected[f"{task}-{name}"] = {
                **adapted,
                "name": f"{name} {task}",
                "pretrained": adapted["output"],
                # The tokenizer of the adapted encoder; the task's texts are encoded with it too.
                "tokenizer": adapted["output"] / "tokenizer",
                "tokens": out(params, "task-tokens", task, kind),
                "output": out(params, "encoder", name, f"{TASK_ADAPTED}-{task}"),
                # The texts of a task are few, and the adapted model from which it starts is another one.
                "increment": None,
                "epochs": settings.epochs,
            }
    return collected


def text_of_vectors(params: Params) -> str:
    """The corpus whose word vectors models without language modelling have: the corpus of the last trained start."""
    adapts = "adapted" in params.run.starts or params.downstream_vocabulary == "domain"
    return "domain" if adapts and "domain" in params.vocabularies else params.pretraining_corpus


def scratch(params: Params) -> dict[str, Arguments]:
    """The same model without a step of language modelling, for comparison. Only of the starts of `run.starts`."""
    corpus = text_of_vectors(params)
    collected: dict[str, Arguments] = {}
    for name, settings in params.pretrain.items():
        starts = ["scratch", *([VECTORS] if settings.source is None else [])]
        learning = params.adapt[name] if corpus == "domain" and name in params.adapt else settings
        for start in (start for start in starts if start in params.run.starts):
            reads = start == VECTORS or bool(settings.model.get("static"))
            collected[name if start == "scratch" else f"{name}-{start}"] = {
                "name": name,
                "family": settings.family or name,
                "tokenizer": _of(params, "tokenizer", params.downstream_vocabulary, settings.tokenizer),
                "tokens": _of(params, "tokens", corpus, settings.tokenizer) if reads else None,
                "training": learning.training if reads else None,
                "pretraining": settings.training.only_windows(),
                "start": start,
                "output": out(params, "encoder", name, start),
                **_model(settings),
                **(_vectors(settings) if reads else {}),
                "seed": params.run.seed,
            }
    return collected


def static(params: Params, start: str) -> dict[str, Arguments]:
    """Computes word vectors with an encoder, for prediction without a pass through it."""
    return {
        name: {
            "name": name,
            "teacher": out(params, "encoder", settings.teacher, start),
            "corpus": out(params, "corpus", "domain"),
            "output": out(params, "encoder", name, start),
            "settings": settings,
            "word": params.tokenizer.word,
            "sample_megabytes": params.tokenizer.sample_megabytes,
            "seed": params.run.seed,
        }
        for name, settings in params.static.items()
        if start != "adapted" or settings.teacher in params.adapt
    }


def _of(params: Params, folder: str, corpus: str, kind: str) -> Path | None:
    return out(params, folder, f"{corpus}-{kind}") if corpus in params.vocabularies else None
