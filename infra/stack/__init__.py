"""The services of infra/compose.yaml as local processes: the command `infra/local-stack`."""
