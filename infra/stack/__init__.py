"""The services of infra/compose.yaml as processes of this machine; `infra/local-stack` is the command."""
