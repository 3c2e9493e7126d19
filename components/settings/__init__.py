"""params.yaml as typed, frozen objects: one module per section, and the loader."""
