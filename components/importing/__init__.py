"""Published models as encoder directories: Hugging Face's folders, fastai's weight files, word vectors as text."""
