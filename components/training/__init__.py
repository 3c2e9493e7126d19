"""The training loop and its parts: samplers, schedules, parameter groups, optimizers, checkpoints, precision."""
