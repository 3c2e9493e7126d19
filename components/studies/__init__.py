"""Studies: questions about a finished run, each answered by tables, figures and numbers."""
