"""Lineage in both directions: from a model to its documents, from a document to the models, and its removal."""
