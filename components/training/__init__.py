"""The one training loop and its parts: samplers, schedules, parameter groups, checkpoints."""
