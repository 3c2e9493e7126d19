"""Drills: faults that are caused on purpose, on a throw-away project with generated data, and what has to follow."""
