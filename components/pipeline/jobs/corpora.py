"""Jobs of the stages that prepare text: checks, corpora, vocabularies, tokens."""

from pathlib import Path

from components.pipeline.jobs import PAIRS_KIND, PARALLEL, WHOLE, Arguments, out
from components.settings.params import Params
from components.settings.tokenizer import TokenizerSettings


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
    """Collects the texts of the train splits and of data.unlabelled."""
    if not params.collects_texts:
        return {}
    sources: dict[str, Arguments] = {task: {"examples": out(params, "examples", task)} for task in params.run.tasks}
    for number, source in enumerate(params.data.unlabelled):
        sources[f"unlabelled-{number}"] = {"unlabelled": source}
    return {
        name: {"name": name, **given, "output": out(params, "domain-texts", name)} for name, given in sources.items()
    }


def judged(params: Params) -> dict[str, Path]:
    """Task of the run -> texts of the rows on which its scores are computed."""
    return {task: out(params, "judged", task) for task in params.run.tasks}


def ingest(params: Params) -> dict[str, Arguments]:
    """Cleans raw text, drops duplicates, writes append-only Parquet shards."""
    return {
        corpus: {
            "name": corpus,
            "source": source,
            "settings": params.ingest,
            "judged": judged(params),
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
            "judged": judged(params),
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
