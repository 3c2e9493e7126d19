# Image of the Prefect worker, Ray nodes and one-off commands. Built from the root of the repository:
#   docker build --file infra/images/headstart.Dockerfile --tag headstart:0.1.0 .
# torch of the package index includes CUDA, so the image is for nodes with and without GPUs. For nodes without GPUs, with a
# smaller torch: --build-arg TORCH=cpu
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS base

# git: for DVC and the workspace; g++: for kernels of torch.compile.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git \
    && rm -rf /var/lib/apt/lists/* \
    # The workspace's volume and the checkout that it is cloned from belong to other users.
    && git config --system --add safe.directory '*'

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1

# Packages change rarely and take minutes to install: a separate layer. pip compiles .pyc files, which halves start-up.
# They are compiled here, because the user of the image cannot write beside them.
COPY requirements.lock /opt/headstart/
ARG TORCH=cuda
RUN case "$TORCH" in \
        cuda) ;; \
        cpu) pip install uv==0.13.8 \
            && uv pip install --system --no-cache --no-deps --torch-backend cpu \
                "$(grep '^torch==' /opt/headstart/requirements.lock)" ;; \
        *) echo "TORCH=$TORCH: known are cuda and cpu" >&2; exit 2 ;; \
    esac \
    && pip install --requirement /opt/headstart/requirements.lock
COPY . /opt/headstart
RUN pip install --no-deps /opt/headstart \
    && useradd --create-home --uid 10001 headstart \
    # A new volume has the owner of the folder that it is mounted on.
    && install --directory --owner=headstart --group=headstart /workspace /traffic
USER headstart
WORKDIR /opt/headstart
CMD ["headstart", "--help"]


# For KubeRay, whose probes and autoscaler need the packages of `ray[default]`.
FROM base AS kuberay
USER root
RUN pip install --constraint requirements.lock --requirement infra/images/kuberay-requirements.txt
USER headstart
