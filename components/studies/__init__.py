"""Studies: what several runs say together, each as a table, a figure and numbers."""
