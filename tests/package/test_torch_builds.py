"""`make install` against a local index in three states: with a GPU, without one, and where the index of torch's builds
does not answer. That index has a fixed address, so uv reaches it through a proxy with a certificate of its own."""

import base64
import datetime
import hashlib
import http.server
import os
import shutil
import ssl
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ROOT = Path(__file__).parents[2]
HOST = "download.pytorch.org"
TORCH = "2.13.0"
#: A driver for which uv takes the build cu130, where it finds one.
DRIVER = "580.65"

pytestmark = pytest.mark.slow


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """A wheel of these files; those below `{name}-{version}.data/scripts/` become commands."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16  # a regular file, executable
            archive.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{file},sha256={digest},{len(content)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]))
    return path


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for `HOST`, which is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "certificate.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return public, private


class Index(http.server.SimpleHTTPRequestHandler):
    """The package index below `simple/`, and by CONNECT that of torch's builds below `whl/`, unless it is silent."""

    protocol_version = "HTTP/1.1"
    silent = False
    context: ssl.SSLContext

    def do_CONNECT(self) -> None:
        if self.silent:
            self.send_error(502)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        self.request = self.connection = self.context.wrap_socket(self.connection, server_side=True)
        self.setup()
        self.close_connection = False
        while not self.close_connection:
            self.handle_one_request()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with the Makefile, a lock of torch alone and an empty package; and the folder of the indexes."""
    folder, served = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("served")
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements.lock").write_text(f"torch=={TORCH}\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "empty"\nversion = "0"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    package = wheel(folder, "empty", "0", {})
    (folder / "backend.py").write_text(
        "import shutil\n\n\ndef build_editable(folder, settings=None, metadata=None):\n"
        f"    return shutil.copy({str(package)!r}, folder).rpartition('/')[2]\n"
    )
    for where, build in (("simple", ""), ("whl/cpu", "+cpu"), ("whl/cu130", "+cu130")):
        wheel(served / where / "torch", "torch", f"{TORCH}{build}", {"torch.py": f"build = {build or 'index'!r}\n"})
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    (version,) = (line.partition("==")[2] for line in lines if line.startswith("UV := "))
    script = f'#!/bin/sh\nexec "{Path(sys.executable).parent / "uv"}" "$@"\n'
    wheel(served / "simple" / "uv", "uv", version, {f"uv-{version}.data/scripts/uv": script})
    return folder, served


@pytest.mark.parametrize(
    ("state", "given", "build"),
    [
        ("no GPU", [], "+cpu"),
        ("GPU", [], "+cu130"),
        ("silent", [], "index"),
        ("GPU", ["TORCH=cpu"], "+cpu"),
        ("silent", ["TORCH=cpu"], None),
    ],
)
def test_the_build_of_torch(state, given, build, project, tmp_path):
    folder, served = project
    public, private = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    handler = type("Handler", (Index,), {"context": context, "silent": state == "silent"})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: handler(*args, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE", "MFLAGS"))}
    environment = kept | {
        "HTTPS_PROXY": address,
        "NO_PROXY": "127.0.0.1",
        "SSL_CERT_FILE": str(public),
        "PIP_INDEX_URL": f"{address}/simple",
        "UV_DEFAULT_INDEX": f"{address}/simple",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_CUDA_DRIVER_VERSION": DRIVER if state == "GPU" else "",
    }
    shutil.rmtree(folder / ".venv", ignore_errors=True)
    command = ["make", "install", f"PYTHON={sys.executable}", *given]
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    finally:
        server.shutdown()
    if build is None:
        assert ended.returncode == 2 and "make: TORCH=cpu: no CPU build of torch" in ended.stderr
        return
    python = folder / ".venv" / "bin" / "python"
    made = subprocess.run(
        [python, "-c", "import torch; print(torch.build)"], capture_output=True, text=True, timeout=60
    )
    assert made.stdout.strip() == build, ended.stdout + ended.stderr
