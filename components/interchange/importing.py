"""`headstart import`: conversion of a published model to an encoder directory."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from components.core.artifacts import Draft, digest_files, json_of
from components.core.errors import ArtifactError, ConfigError
from components.core.outputs import named_output
from components.interchange.characters import CHARACTERS, from_flair
from components.interchange.characters import FILES as FLAIR_FILES
from components.interchange.elmo import SUFFIX as ELMO
from components.interchange.elmo import from_elmo_file, options_file
from components.interchange.huggingface import CONVERTERS, family_of
from components.interchange.published import Imported, errors_of, read_tensors, with_settings
from components.interchange.sentence import read_reading, reading_files, transformer_folder
from components.interchange.starts.registry import folder_of, listed_reading
from components.interchange.transformer_xl import MODEL_TYPE as TRANSFO_XL
from components.interchange.transformer_xl import from_transfo_xl, vocabulary_file
from components.interchange.vectors import SUFFIX
from components.interchange.words import from_fastai_file, from_vectors
from components.models import family as family_named
from components.models.base import LanguageModel
from components.models.encoder import KIND, empty_model, save_encoder, write_untrained
from components.models.sentence import Reading
from components.settings.hub import is_hub_name
from components.tokenization import Tokenizer
from components.tokenization.published import FILES, Vocabulary, json_object, read_vocabulary
from components.tokenization.special import FIRST_ORDINARY

WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
PICKLES: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth", "tf_model.h5")


def read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no such folder")
    if not (folder / "config.json").is_file():
        raise ArtifactError(f"{folder}: no config.json; this is not a Hugging Face model")
    return json_object(folder / "config.json")


def weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        try:
            names = sorted(set(json_of(folder / INDEX)["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise ArtifactError(f"{folder / INDEX}: damaged ({error!r}); download it again") from error
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise ArtifactError(f"{folder}: missing {', '.join(missing)}; download the folder again")
        return [folder / name for name in names]
    if pickles := [name for name in PICKLES if (folder / name).is_file()]:
        raise ArtifactError(
            f"{folder / pickles[0]}: a pickle can execute code, so only safetensors are read; convert it where you "
            "trust it: AutoModel.from_pretrained(folder).save_pretrained(folder)"
        )
    raise ArtifactError(f"{folder}: no {WEIGHTS}; this folder has no weights")


#: Suffixes of word vectors, and of fastai's weights.
VECTORS: Final = (".txt", ".vec", ".gz", SUFFIX)
FASTAI: Final = (".pth",)


def import_encoder(
    source: Path, *, output: Path, family: str | None = None, vocabulary: Path | None = None, overwrite: bool = False
) -> list[str]:
    """Convert a published model and write the encoder directory `output`; returns the log of the mapping.

    Args:
        source: the name of a model of the hub; a Hugging Face folder (`MODEL_TYPES`), a folder of flair's models, a
            fastai weight file (.pth), ELMo's weights (.hdf5), or word vectors (.txt, .vec, .gz; .bin of word2vec or
            fastText).
        family: of the result; None: from config.json, `ulmfit` for .pth, `elmo` for .hdf5, `word2vec` for vectors.
        vocabulary: .json, of a fastai file; None: `itos.json` in the same folder.

    Raises:
        ArtifactError: the format is unknown, the source is damaged or inconsistent, or the output exists.
        ConfigError: the family does not exist or does not support the source.
    """
    with named_output(output, kind=KIND, overwrite=overwrite) as draft:
        imported = read_published(Path(source), family=family, vocabulary=vocabulary)
        write_imported(imported, source=source, draft=draft)
    return imported.log


def write_imported(imported: Imported, *, source: Path, draft: Draft) -> None:
    with tempfile.TemporaryDirectory() as folder:
        imported.tokenizer.save(Path(folder))
        save_encoder(draft.path, family=imported.family, model=imported.model, tokenizer=Path(folder))
        write_untrained(draft.path, imported.model)
        (draft.path / "import.log").write_text("\n".join(imported.log) + "\n", encoding="utf-8")
        draft.facts |= {
            "trained": True,
            "family": imported.family,
            "tokenizer": imported.tokenizer.fingerprint(),
            "parent": None,
            "source": str(source),
            "source_digest": imported.digest,
            "fresh": imported.fresh,
            "torch": torch.__version__,
        }


def read_published(
    source: Path,
    *,
    family: str | None = None,
    vocabulary: Path | None = None,
    digest: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Imported:
    """Convert a published model of any format, as `import_encoder`; `digest`: expected SHA-256 of the source;
    `settings`: dropout rates and penalties of the model."""
    if family is not None:
        family_named(family)
    source = _local(source)
    read, files = _recognised(source, vocabulary)
    content = _digest(source, files)
    if digest is not None and digest != content:
        raise ArtifactError(
            f"{source}: its digest is {content}, expected {digest}; it is not the model that was specified"
        )
    return with_settings(read(source, family=family, digest=content), settings or {}, source=source)


def source_digest(source: Path) -> str:
    """SHA-256 over all files that importing `source` reads.

    Raises:
        ArtifactError: the source cannot be imported.
    """
    source = _local(source)
    return _digest(source, _recognised(source, None)[1])


def _digest(source: Path, files: list[Path]) -> str:
    entry, content = listed_reading(source), digest_files(files)
    return hashlib.sha256(f"{content} {json.dumps(entry)}".encode()).hexdigest() if entry else content


def _local(source: Path) -> Path:
    """The folder of a model of the hub; other sources are paths."""
    return folder_of(source) if is_hub_name(source) else source


def _recognised(source: Path, vocabulary: Path | None) -> tuple[Callable[..., Imported], list[Path]]:
    """The function that reads a published model, and the files that decide the result."""
    if (source / CHARACTERS).is_file():
        return from_flair, [source / name for name in FLAIR_FILES]
    if (source / "config.json").is_file() and (config := read_config(source)).get("model_type") == TRANSFO_XL:
        # The installed transformers cannot convert this pickle.
        pickled = source / PICKLES[0]
        plain = pickled.is_file() and not (source / WEIGHTS).is_file()
        weights = [pickled] if plain else weight_files(source)
        read = partial(from_transfo_xl, config=config, weights=weights)
        return read, [source / "config.json", *weights, vocabulary_file(source)]
    if source.is_dir():
        inner = transformer_folder(source)
        return _from_huggingface, [
            inner / "config.json", *weight_files(inner), *(inner / name for name in FILES), *reading_files(source)
        ]  # fmt: skip
    if not source.exists():
        raise ArtifactError(f"{source}: does not exist")
    if source.suffix in FASTAI:
        words = vocabulary or source.with_name("itos.json")
        if not words.is_file():
            raise ArtifactError(f"{words}: does not exist; name the vocabulary of {source.name} with --vocabulary")
        return partial(from_fastai_file, vocabulary=words), [source, words]
    if source.suffix == ELMO:
        return from_elmo_file, [source, options_file(source)]
    if source.suffix in VECTORS:
        return from_vectors, [source]
    raise ArtifactError(
        f"{source}: unknown format; give a Hugging Face folder, a fastai file (.pth) with its vocabulary, ELMo's "
        f"weights ({ELMO}), or word vectors ({', '.join(VECTORS)})"
    )


def _from_huggingface(folder: Path, *, family: str | None, digest: str) -> Imported:
    reading, layers = read_reading(folder)
    if entry := listed_reading(folder):
        listed = Reading.model_validate(entry)
        reading = listed if reading is None else reading.model_copy(update={"prompt": reading.prompt or listed.prompt})
    folder = transformer_folder(folder)
    config = read_config(folder)
    try:
        result = family_of(config)
    except ArtifactError as error:
        raise ArtifactError(f"{folder}/{error}") from error
    if family is not None and family != result:
        raise ConfigError(
            f"{folder}: its model_type {config['model_type']!r} belongs to the family {result!r}, not {family!r}"
        )
    tensors = read_tensors(weight_files(folder))
    vocabulary = read_vocabulary(folder)
    with errors_of(folder):
        settings, rows, inner, fresh = CONVERTERS[result].from_huggingface(config, tensors)
    if vocabulary.size != rows:
        raise ArtifactError(f"{folder}: the tokenizer has {vocabulary.size} pieces, but the model has {rows} rows")
    kind = vocabulary.tokenizer.kind
    model = empty_model(result, vocabulary=rows, settings={**settings, "reading": reading}, tokenizer=kind)
    inner |= {f"sentence.{name}": value.float() for name, value in layers.items()}
    try:
        model.to_empty(device="cpu").load_state_dict(inner)
    except RuntimeError as error:
        raise ArtifactError(f"{folder}: the weights of its modules do not fit: {error}; download it again") from error
    model.remap_vocabulary(torch.tensor(vocabulary.rows))
    model.bind(vocabulary.tokenizer)
    _check_reading(folder, model, vocabulary.tokenizer)
    log = [
        f"{folder}: model_type {config['model_type']!r} -> family {result!r}",
        f"tokenizer: {kind}, {vocabulary.tokenizer.vocab_size} pieces",
        *_special_log(vocabulary),
        f"{len(tensors)} tensors imported",
    ]
    if reading is not None:
        log.append(f"read as trained: {reading.model_dump_json(exclude_defaults=True)}")
    if fresh:
        log.append(f"not in the file, initialised as in a new model: {', '.join(fresh)}")
    return Imported(result, model.eval(), vocabulary.tokenizer, digest, log, fresh)


def _check_reading(folder: Path, model: LanguageModel, tokenizer: Tokenizer) -> None:
    """Refuse what the family or the tokenizer cannot express: the pieces of a prompt and of a text that are encoded
    apart must be those of the whole."""
    reading = model.config.reading
    if reading is None:
        return
    texts = ["word", "9 (a)"]
    whole = tokenizer.encode_batch([f"{reading.prompt}{text}" for text in texts])
    apart = tokenizer.encode_texts(texts)
    problems = {
        "a maximum length": reading.max_length is not None
        and (model.max_tokens is None or model.max_tokens > reading.max_length),
        "a prompt": bool(reading.prompt)
        and (
            len(model.special_tokens([])) <= len(model.prompt)
            # sentence-transformers leaves out a piece more, the space.
            or (bool(tokenizer.lead) and not reading.pool_prompt)
            or any([*model.prompt, *text] != list(both) for text, both in zip(apart, whole, strict=True))
        ),
    }
    if named := [name for name, holds in problems.items() if holds]:
        raise ArtifactError(
            f"{folder}: {' and '.join(named)} of a {type(model).__name__} with this tokenizer is not supported; choose "
            "another encoder"
        )


def _special_log(vocabulary: Vocabulary) -> list[str]:
    pieces = vocabulary.tokenizer.pieces
    return [
        f"{pieces[ours]} (id {ours}): {vocabulary.named[pieces[ours]]!r} (id {theirs})"
        if theirs >= 0
        else f"{pieces[ours]} (id {ours}): not in the published vocabulary, initialised with the mean of all rows"
        for ours, theirs in enumerate(vocabulary.rows[:FIRST_ORDINARY])
    ]
