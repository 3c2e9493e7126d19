"""Jobs of the stages that prepare text (checks, corpora, vocabularies, tokens) and make encoders."""

from pathlib import Path

from components.pipeline.jobs import PAIRS_KIND, PARALLEL, WHOLE, Arguments, out
from components.settings.params import Params
from components.settings.section import VECTORS
from components.settings.systems import TASK_ADAPTED
from components.settings.tokenizer import TokenizerSettings
from components.settings.training import PretrainSettings


def checks(params: Params) -> dict[str, Arguments]:
    """Compares new data with the last accepted version."""
    # Texts of the tasks are checked as rows of these.
    corpora = {corpus: source for corpus, source in params.corpora.items() if getattr(params.data, corpus) is not None}
    corpora |= {f"unlabelled-{number}": source for number, source in enumerate(params.data.unlabelled)}
    pairs = {f"{corpus}-{PARALLEL}": source for corpus, source in params.data.parallel.items()}
    return {
        WHOLE: {
            "corpora": corpora | pairs,
            "tasks": {task: params.data.tasks[task] for task in params.run.tasks},
            "settings": params.checks,
            "output": out(params, "checks"),
            "cluster": params.cluster,
        }
    }


def domain_texts(params: Params) -> dict[str, Arguments]:
    """Collects the texts of the train splits and of data.unlabelled. Texts of dev and test are left out."""
    if not params.collects_texts:
        return {}
    sources = dict.fromkeys(params.run.tasks) | {
        f"unlabelled-{number}": source for number, source in enumerate(params.data.unlabelled)
    }
    return {
        name: {
            "name": name,
            "examples": {task: out(params, "examples", task) for task in params.run.tasks},
            "unlabelled": source,
            "output": out(params, "domain-texts", name),
        }
        for name, source in sources.items()
    }


def ingest(params: Params) -> dict[str, Arguments]:
    """Cleans raw text, drops duplicates, writes append-only Parquet shards."""
    return {
        corpus: {
            "name": corpus,
            "source": source,
            "settings": params.ingest,
            "cluster": params.cluster,
            "output": out(params, "corpus", corpus),
        }
        for corpus, source in params.corpora.items()
    }


def ingest_parallel(params: Params) -> dict[str, Arguments]:
    """Cleans pairs of texts, drops duplicates, writes append-only Parquet shards."""
    return {
        corpus: {
            "name": f"{corpus} pairs",
            "source": source,
            "settings": params.ingest,
            "cluster": params.cluster,
            "output": out(params, "corpus", f"{corpus}-{PARALLEL}"),
        }
        for corpus, source in params.data.parallel.items()
    }


def tokenizer(params: Params) -> dict[str, Arguments]:
    """Trains the vocabulary of a corpus, or keeps it while it fits new text."""
    return {
        f"{corpus}-{kind}": {
            "corpus": out(params, "corpus", corpus),
            "output": out(params, "tokenizer", f"{corpus}-{kind}"),
            "record": out(params, "vocabulary", f"{corpus}-{kind}"),
            "kind": kind,
            "settings": _tokenizer_settings(params, kind),
        }
        for corpus in params.vocabularies
        for kind in params.tokenizer.kinds
    }


def _tokenizer_settings(params: Params, kind: str) -> TokenizerSettings:
    """The settings that the vocabulary of one kind depends on; the settings of other kinds are reset to defaults."""
    block = "word" if kind == "open_word" else kind
    kept = params.tokenizer.model_dump(include={"sample_megabytes", block})
    return TokenizerSettings.model_validate(kept)


def tokenizer_parallel(params: Params) -> dict[str, Arguments]:
    """Trains one vocabulary for both sides of the pairs and for the corpus."""
    return {
        corpus: {
            "corpus": out(params, "corpus", corpus),
            "pairs": out(params, "corpus", f"{corpus}-{PARALLEL}"),
            "output": out(params, "tokenizer", f"{corpus}-{PARALLEL}"),
            "kind": PAIRS_KIND,
            "settings": _tokenizer_settings(params, PAIRS_KIND),
        }
        for corpus in params.data.parallel
    }


def tokenize(params: Params) -> dict[str, Arguments]:
    """Writes a corpus as memory-mapped token shards."""
    return {
        f"{corpus}-{kind}": {
            "corpus": out(params, "corpus", corpus),
            "tokenizer": out(params, "tokenizer", f"{_vocabulary(params, corpus)}-{kind}"),
            "output": out(params, "tokens", f"{corpus}-{kind}"),
            "cluster": params.cluster,
        }
        for corpus in params.vocabularies
        for kind in params.tokenizer.kinds
    }


def tokenize_parallel(params: Params) -> dict[str, Arguments]:
    """Writes pairs as memory-mapped token shards."""
    return {
        corpus: {
            "corpus": out(params, "corpus", f"{corpus}-{PARALLEL}"),
            "tokenizer": out(params, "tokenizer", f"{_vocabulary(params, corpus)}-{PARALLEL}"),
            "output": out(params, "tokens", f"{corpus}-{PARALLEL}"),
            "cluster": params.cluster,
        }
        for corpus in params.data.parallel
    }


def _vocabulary(params: Params, corpus: str) -> str:
    return params.downstream_vocabulary if corpus == "domain" else corpus


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
    """The same model without a step of language modelling, for comparison."""
    corpus = text_of_vectors(params)
    collected: dict[str, Arguments] = {}
    for name, settings in params.pretrain.items():
        starts = ["scratch", *([VECTORS] if VECTORS in params.run.starts and settings.source is None else [])]
        learning = params.adapt[name] if corpus == "domain" and name in params.adapt else settings
        for start in starts:
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
