"""Classifiers on words: TF-IDF features and a linear model, without a language model. Free of torch."""
