"""Which texts to label next, answers merged into the labelled data, and labels that look wrong."""
