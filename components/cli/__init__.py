"""The command `headstart`."""
