"""N-gram language models, with which the perplexity of neural language models is compared."""
