"""Reading of labelled files: records, and splits that are checked against each other."""
