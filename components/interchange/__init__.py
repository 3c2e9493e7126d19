"""Import and export of encoders: Hugging Face, fastai, word vectors."""
