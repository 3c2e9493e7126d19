"""What the systems are worth: scores with intervals, what transfer brings, who wins."""
