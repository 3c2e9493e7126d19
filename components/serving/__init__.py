"""Use of models: the prediction server, prediction of large files, generation, likelihood, neighbours, perplexity."""
