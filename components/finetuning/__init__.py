"""Learning a task from labels, on top of an encoder."""
