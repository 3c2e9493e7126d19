"""Classifiers on words: TF-IDF features and a linear model, without a language model. Free of torch."""

#: Languages that are written without spaces between words.
UNSPACED = frozenset(("th", "zh", "ja", "lo", "km", "my"))
