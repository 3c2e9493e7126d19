"""Adaptation: a pretrained language model goes on training on a domain's text."""
