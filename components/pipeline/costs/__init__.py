"""What a run costs: durations of earlier runs, estimates, and the gain that is to be expected."""
