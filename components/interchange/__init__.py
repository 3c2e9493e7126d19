"""Import and export of models: Hugging Face, fastai, ONNX, word vectors."""
