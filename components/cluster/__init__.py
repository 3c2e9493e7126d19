"""Where a job runs: this process, or workers of Ray."""
