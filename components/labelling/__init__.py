"""Which texts to label next, the file of answers, and labels that look wrong."""
