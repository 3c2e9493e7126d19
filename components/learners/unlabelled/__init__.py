"""Learning from text without labels: pseudo-labels, and regressions that learn from them. Free of torch."""
