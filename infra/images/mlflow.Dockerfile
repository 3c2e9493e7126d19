# The MLflow server: mlflow with a Postgres driver and an S3 client, in the locked versions.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1

COPY requirements.lock /tmp/
RUN pip install --constraint /tmp/requirements.lock mlflow flask-wtf psycopg2-binary boto3 \
    && useradd --create-home --uid 10001 mlflow
USER mlflow
WORKDIR /home/mlflow
EXPOSE 5000
CMD ["mlflow", "server", "--host=0.0.0.0", "--port=5000"]
