"""The context of an image that serves one model: Dockerfile, model, code and the locked packages.

The image is built as infra/images/headstart.Dockerfile is. It needs no registry; a newer model is a newer image.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from components.resources import FILES, LOCK

PACKAGE: Final = Path(__file__).resolve().parents[1]
MODEL: Final = "model"
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
    shutil.copytree(model, directory / MODEL)
    return [f"{DOCKERFILE}, {LOCK}, {PACKAGE.name}/, {MODEL}/: the context of an image that serves on port 8000"]
