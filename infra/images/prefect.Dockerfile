# The Prefect server, and the worker that starts flow runs as Kubernetes Jobs, in the locked versions.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS server

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1

# fastapi and sqlalchemy are named because prefect 3.8.8 fails with newer versions (requirements.in).
COPY requirements.lock /opt/headstart/
RUN pip install --constraint /opt/headstart/requirements.lock prefect asyncpg fastapi sqlalchemy \
    && useradd --create-home --uid 10001 prefect
USER prefect
WORKDIR /home/prefect
EXPOSE 4200
CMD ["prefect", "server", "start", "--host=0.0.0.0", "--port=4200"]


FROM server AS kubernetes-worker
USER root
COPY infra/images/kubernetes-worker-requirements.txt /opt/headstart/
RUN pip install --constraint /opt/headstart/requirements.lock --requirement /opt/headstart/kubernetes-worker-requirements.txt
USER prefect
CMD ["prefect", "worker", "start", "--pool=headstart", "--type=kubernetes"]
