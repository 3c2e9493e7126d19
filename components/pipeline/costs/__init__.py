"""What a run costs: durations of earlier runs, and estimates."""
