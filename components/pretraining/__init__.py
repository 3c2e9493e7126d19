"""Pretraining: a language model from a corpus, or the untrained one that it is compared with."""
