"""Drills: faults that are caused on purpose, in a temporary project with generated data, and what has to follow."""
