"""N-gram language models: the yardstick of every perplexity."""
