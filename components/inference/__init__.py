"""Predictions, generation, likelihood and neighbours of trained models."""
