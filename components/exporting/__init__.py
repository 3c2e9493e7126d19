"""Encoder directories for others: Hugging Face's folders, ONNX, word vectors as text."""
