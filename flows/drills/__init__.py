"""Drills: faults that are caused on purpose, on a throw-away project with built-in data, and what has to follow."""
