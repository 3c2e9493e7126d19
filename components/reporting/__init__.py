"""The report: one HTML file with figures, and the same numbers as JSON."""
