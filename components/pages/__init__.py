"""The local pages of a project: `headstart ui`."""
