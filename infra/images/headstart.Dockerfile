# What runs the flow: Prefect worker, Ray nodes, one-off commands. Built from the repository's root:
#   docker build --file infra/images/headstart.Dockerfile --tag headstart:0.1.0 .
# torch of PyPI carries CUDA, so the same image serves nodes with and without GPUs.
FROM python:3.11-slim-bookworm AS base

# git: DVC and the workspace; g++: kernels that torch.compile writes.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git \
    && rm -rf /var/lib/apt/lists/* \
    # The workspace's volume and the checkout it is cloned from belong to other accounts.
    && git config --system --add safe.directory '*'

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1

# Packages change seldom and take minutes: a layer of their own. pip writes the .pyc files, which halve every start.
COPY requirements.lock /opt/headstart/
RUN pip install --requirement /opt/headstart/requirements.lock

COPY . /opt/headstart
RUN pip install --no-deps /opt/headstart \
    && useradd --create-home --uid 1000 headstart \
    # A new volume takes over the owner of the folder that it is mounted on.
    && install --directory --owner=headstart --group=headstart /workspace
USER headstart
WORKDIR /opt/headstart
CMD ["headstart", "--help"]


# For KubeRay: its probes and autoscaler need what `ray[default]` adds.
FROM base AS kuberay
USER root
RUN pip install --constraint requirements.lock --requirement infra/images/kuberay-requirements.txt
USER headstart
