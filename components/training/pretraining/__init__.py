"""Pretraining and adaptation of language models, and the samplers of their objectives."""
