"""The table of stages, the job of each stage, and the checks before a run."""
