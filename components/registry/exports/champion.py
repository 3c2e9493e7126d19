"""`headstart export`: the champion of a task, or a directory, for onnxruntime, transformers, or as a container, whose
context has a Dockerfile, the model, the code and the locked packages."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.torch import save_file

from components.core.artifacts import MANIFEST, json_of, read_manifest, write_json
from components.core.errors import ArtifactError, ConfigError, nearest
from components.core.outputs import named_output
from components.core.resources import FILES, LOCK
from components.data.scoring.base import title
from components.data.tasks.data import Split
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.members import extract_member, members_of
from components.interchange.huggingface import CONVERTERS
from components.interchange.sentence import write_reading
from components.interchange.tokenizer_json import write_tokenizer
from components.interchange.vectors import write_vectors
from components.learners.task_models.classifier import TextClassifier, load_members
from components.learners.words.classifier import FORM, form_of
from components.learners.words.features import DESCRIPTION
from components.models.encoder import TOKENIZER as TOKENIZER_FOLDER
from components.models.encoder import WEIGHTS, Encoder, family_of, load_encoder
from components.models.static import StaticVectors
from components.registry.champion import fetched_champion
from components.registry.exports.onnx import (
    CONFIG,
    INT8,
    MODEL,
    TOKENIZER,
    predict,
    refuse,
    snippet,
    write_int8,
    write_onnx,
    write_task_graph,
)
from components.registry.exports.onnx import write_tokenizer as write_onnx_tokenizer
from components.settings.params import Params
from components.tokenization.special import FIRST_ORDINARY

KIND: Final = "export"
FORMS: Final = ("onnx", "huggingface", "container")
ENCODER_FORMS: Final = ("huggingface", "onnx", "vectors")
VECTORS_FILE: Final = "vectors.txt"
ENCODER: Final = "encoder"
CARD: Final = "README.md"
#: Maximum number of rows on which an export is compared with the model.
ROWS: Final = 2000


@dataclass(frozen=True)
class Source:
    """What is exported.

    Attributes:
        task: name of the task; empty if it is not known.
        rows: labelled rows on which the export is measured; None: it is not measured.
    """

    directory: Path
    name: str
    task: str
    digest: str
    rows: Split | None = None
    split: str = "test"


@dataclass(frozen=True)
class Export:
    """How a model is exported.

    Attributes:
        form: of a trained model: `onnx` (graph, tokenizer.json, and labels in config.json), `huggingface` (a folder
            that `transformers.pipeline` loads) or `container` (the context of an image that serves the model).
        int8: whether the graph is also written with 8-bit matrices, and the loss measured.
        member: of an average, the number of the model to export instead; from 0.
    """

    output: Path
    form: str
    int8: bool = False
    member: int | None = None
    overwrite: bool = False


def export_directory(directory: Path, export: Export) -> list[str]:
    """Export an encoder or a trained model; see `export_encoder` and `export_classifier`."""
    if not ((directory / CONFIG).is_file() and (directory / "labels.json").is_file()):
        if export.int8 or export.member is not None:
            raise ConfigError(f"{directory}: --int8 and --member need a trained model, not an encoder")
        return export_encoder(directory, output=export.output, form=export.form, overwrite=export.overwrite)
    manifest = read_manifest(directory)
    task = str(manifest.facts.get("task", ""))
    return export_classifier(Source(directory, directory.resolve().name, task, manifest.digest), export)


def export_champion(params: Params, task: str, export: Export, *, label: str = "") -> list[str]:
    """Export the champion of a task, and measure it on the rows of test, or of dev if there are none. `label`: of
    another registered version, such as headstart-reviews/1."""
    model, _, number = label.rpartition("/")
    names = {params.registry.model_name(task): task for task in reversed(params.run.tasks)}
    if label and (model not in names or not number.isdecimal()):
        raise ConfigError(
            f"{label}: is neither a folder nor a registered version; versions of this project are "
            f"{', '.join(f'{each}/NUMBER' for each in names)}"
        )
    name = names[model] if label else task or params.run.tasks[0]
    with fetched_champion(params.registry, name, number=number) as (version, bundle):
        rows, split = _labelled_rows(Path(params.run.out) / "examples" / name)
        return export_classifier(Source(bundle, version.label, name, version.digest, rows, split), export)


def _labelled_rows(examples: Path) -> tuple[Split | None, str]:
    try:
        read_facts(examples)
        for split in ("test", "dev"):
            if len(rows := read_split(examples, split)):
                return rows, split
    except ArtifactError:
        pass
    return None, "test"


def export_classifier(source: Source, export: Export) -> list[str]:
    """Write a trained task model in another form; returns log lines.

    Raises:
        ArtifactError: the directory is not a complete classifier, or the output exists.
        ConfigError: the form is unknown, or cannot express the model; or a package is missing.
    """
    form, int8 = export.form, export.int8
    if form not in FORMS:
        raise ConfigError(f"unknown format {form!r}{nearest(form, FORMS)}")
    if int8 and form != "onnx":
        raise ConfigError(f"--int8 quantises an ONNX graph; use it with --format onnx, not {form}")
    facts = read_manifest(source.directory, verify=True).facts
    if export.member is not None:
        with tempfile.TemporaryDirectory(prefix="headstart-member-") as folder:
            extract_member(source.directory, export.member, Path(folder) / "model")
            member = replace(source, directory=Path(folder) / "model", name=f"{source.name}, member {export.member}")
            return export_classifier(member, replace(export, member=None))
    if form != "container" and (count := len(members_of(source.directory))) > 1:
        seeds = ", ".join(map(str, facts.get("seeds", [])))
        raise ConfigError(
            f"{source.name}: is the average of {count} models (seeds {seeds}), which {form} cannot express; export one "
            "with --member 0, use --format container, or train with one seed (data.tasks.<name>.seeds)"
        )
    config = json_of(source.directory / CONFIG)
    labels = json_of(source.directory / "labels.json")
    with named_output(export.output, kind=KIND, overwrite=export.overwrite) as draft:
        usage, lines = "", list[str]()
        if form == "container":
            notes = write_context(draft.path, source.directory)
            usage = "docker build --tag model .\ndocker run --publish 8000:8000 model\n"
        elif form_of(source.directory) == FORM:
            raise ConfigError(
                f"{source.name}: is a model of words without a language model, which {form} cannot express; "
                "use --format container"
            )
        else:
            classifier = load_members(source.directory)[0].sharpened()
            if form == "huggingface":
                from components.registry.exports.pipelines import MODULE, TRUST, write_pipeline

                notes, usage = write_pipeline(draft.path, classifier, family=family_of(source.directory / ENCODER))
                lines += [TRUST] * (draft.path / MODULE).exists()
            else:
                notes, usage = _graph(draft.path, classifier, int8=int8), snippet(classifier)
                lines += _measured(draft.path, source, classifier, int8=int8)
        card = _card(source, str(config["kind"]), labels, usage=usage, lines=lines)
        (draft.path / CARD).write_text(card, encoding="utf-8")
        draft.facts |= {"form": form, "model": source.name, "digest": source.digest}
    return [*notes, *lines]


def _card(source: Source, kind: str, labels: Sequence[str], *, usage: str, lines: Sequence[str]) -> str:
    named = f"{len(labels)} labels: {', '.join(labels)}" if labels else "no labels"
    text = (
        f"# {source.name}\n\nA {kind} model"
        + (f" of the task {source.task}" if source.task else "")
        + f", exported from Headstart. Content digest: {source.digest}.\n\n{named}\n"
        + (f"\n```\n{usage}```\n" if usage else "")
        + "".join(f"\n- {line}" for line in lines)
    )
    return text.rstrip() + "\n"


def _graph(directory: Path, classifier: TextClassifier, *, int8: bool) -> list[str]:
    # First, because it takes the shortest time to find out.
    refuse(classifier)
    write_onnx_tokenizer(directory / TOKENIZER, classifier)
    write_task_graph(directory / MODEL, classifier)
    notes = [f"{MODEL}: input_ids, attention_mask -> outputs; {CARD}: from a text to its label"]
    if int8:
        write_int8(directory / MODEL, directory / INT8)
        sizes = [(directory / name).stat().st_size / 1e6 for name in (MODEL, INT8)]
        notes.append(f"{INT8}: {sizes[1]:.1f} MB instead of {sizes[0]:.1f} MB")
    if (segmenter := classifier.tokenizer.segmentation.name) != "none":
        notes.append(
            f"{TOKENIZER} expects text with spaces between words; Headstart inserts them (segmenter: {segmenter})"
        )
    config = {"kind": classifier.kind, "labels": list(classifier.labels)}
    write_json(directory / CONFIG, config, ensure_ascii=False)
    return notes


def _measured(directory: Path, source: Source, classifier: TextClassifier, *, int8: bool) -> list[str]:
    """Lines about the scores of the original and of the exported model on labelled rows."""
    if source.rows is None or not len(source.rows):
        return ["not measured: there are no labelled rows of the task here"]
    chosen = np.random.default_rng(0).permutation(len(source.rows))[:ROWS]
    rows = source.rows.take(np.sort(chosen))
    scoring = scoring_for(classifier.kind, classifier.labels)

    def score(answers: Sequence[Any]) -> float:
        return scoring.score(rows.fields, rows.targets, answers)[scoring.main]

    original, exported = classifier.answer(rows.fields), predict(directory, rows.fields)
    far = max(float(np.abs(before - after).max()) for before, after in zip(original, exported, strict=True))
    name, base = title(scoring.main), score(original)
    where = f"{len(rows)} {source.split} rows" + (f" of {source.task}" if source.task else "")
    lines = [
        f"{name} on {where}: {base:.4f}, exported {score(exported):.4f}; largest difference of an output {far:.1e}"
    ]
    if int8:
        small = score(predict(directory, rows.fields, int8=True))
        lines.append(f"int8: {name} {small:.4f} on the same rows, a loss of {base - small:+.4f}")
    return lines


PACKAGE: Final = Path(__file__).resolve().parents[2]
SERVED: Final = "model"
DOCKERFILE: Final = "Dockerfile"
IGNORED: Final = ".dockerignore"
SERVED_IMAGE: Final = """\
# Serves the model in this folder. torch from PyPI includes CUDA, so the image is for nodes with and without GPUs.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

ENV PIP_NO_CACHE_DIR=1 \\
    PIP_DISABLE_PIP_VERSION_CHECK=1 \\
    PYTHONUNBUFFERED=1 \\
    PYTHONPATH=/opt/headstart

# g++: for kernels of torch.compile.
RUN apt-get update \\
    && apt-get install --yes --no-install-recommends g++ \\
    && rm -rf /var/lib/apt/lists/*

# Packages change rarely and take minutes to install: a separate layer. pip compiles .pyc files, which halves start-up.
COPY requirements.lock /opt/headstart/
RUN pip install --requirement /opt/headstart/requirements.lock \\
    && useradd --create-home --uid 10001 headstart

COPY components /opt/headstart/components
COPY model /opt/headstart/model
USER headstart
WORKDIR /opt/headstart
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz')"]
# Requests need the token HEADSTART_TOKEN; if it is not set, the log has a random one.
CMD ["python", "-m", "components.cli", "serve", "--model", "model", "--host", "0.0.0.0", "--port", "8000"]
"""


def write_context(directory: Path, model: Path) -> list[str]:
    """Write the context of an image for a trained task model; returns log lines."""
    (directory / DOCKERFILE).write_text(SERVED_IMAGE, encoding="utf-8")
    (directory / IGNORED).write_text("**/__pycache__\nREADME.md\nmanifest.json\n!model/**\n", encoding="utf-8")
    shutil.copyfile(FILES / LOCK, directory / LOCK)
    shutil.copytree(PACKAGE, directory / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(model, directory / SERVED)
    return [f"{DOCKERFILE}, {LOCK}, {PACKAGE.name}/, {SERVED}/: the context of an image that serves on port 8000"]


def export_encoder(encoder: Path, *, output: Path, form: str = "huggingface", overwrite: bool = False) -> list[str]:
    """Convert an encoder directory and write the directory `output`; returns log lines.

    Args:
        form: `huggingface`: a folder for AutoModel and AutoTokenizer of transformers, with the same outputs and ids;
            `onnx`: the computation graph, and the tokenizer; `vectors`: a text file of word vectors (static families).

    Raises:
        ArtifactError: `encoder` is not a complete encoder directory, or the output exists.
        ConfigError: the format is unknown, or does not support the family or its tokenizer; or `encoder` is a words
            model.
    """
    if (Path(encoder) / DESCRIPTION).is_file():
        raise ConfigError(
            f"{encoder}: is the words of a model, without an encoder to export; export the model: --format container"
        )
    if form not in ENCODER_FORMS:
        raise ConfigError(f"unknown format {form!r}{nearest(form, ENCODER_FORMS)}")
    loaded = load_encoder(Path(encoder), verify=True)
    assert loaded.manifest is not None
    with named_output(output, kind=KIND, overwrite=overwrite) as draft:
        if form == "huggingface":
            notes = _huggingface(draft.path, loaded)
        elif form == "onnx":
            notes = write_onnx(draft.path / MODEL, loaded.model)
            shutil.copytree(
                Path(encoder) / TOKENIZER_FOLDER, draft.path / TOKENIZER_FOLDER, ignore=shutil.ignore_patterns(MANIFEST)
            )
        else:
            notes = _vectors(draft.path, loaded)
        draft.facts |= {"family": loaded.family, "form": form, "encoder": loaded.manifest.digest}
    return notes


def _huggingface(directory: Path, encoder: Encoder) -> list[str]:
    if encoder.family not in CONVERTERS:
        raise ConfigError(
            f"the family {encoder.family!r} has no counterpart in transformers"
            f"{nearest(encoder.family, CONVERTERS)}; `--format onnx` supports every encoder that ONNX can express"
        )
    converter = CONVERTERS[encoder.family]
    config, tensors = converter.to_huggingface(encoder.model)
    write_json(directory / CONFIG, config)
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    # The prompt stands in the files of the reading.
    encoder.model.prompt, encoder.tokenizer.lead = (), ""
    return [
        f"{config['architectures'][0]}: {len(tensors)} tensors",
        *write_reading(directory, encoder.model),
        *write_tokenizer(directory, encoder.tokenizer, encoder.model, padding=converter.padding),
    ]


def _vectors(directory: Path, encoder: Encoder) -> list[str]:
    if not isinstance(encoder.model, StaticVectors):
        raise ConfigError(
            f"the family {encoder.family!r} has no context-independent word vectors; static families have"
        )
    words = encoder.tokenizer.pieces[FIRST_ORDINARY:]
    write_vectors(directory / VECTORS_FILE, words, encoder.model.vectors()[FIRST_ORDINARY:].numpy())
    return [f"{VECTORS_FILE}: {len(words)} vectors"]
