# Redis for the state of Ray's head, as packaged by Debian.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

RUN apt-get update \
    && apt-get install --yes --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 headstart \
    # A new volume has the owner of the folder that it is mounted on.
    && install --directory --owner=headstart --group=headstart /data
USER headstart
WORKDIR /data
EXPOSE 6379
CMD ["redis-server"]
