"""Encoders with task heads: how a labelled row is encoded, the heads, and the directory of a trained model."""
