"""Learning from text without labels: the texts, pseudo-labels, and their regression. Free of torch."""
