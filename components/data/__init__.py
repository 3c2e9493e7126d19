"""Files of users as rows and documents: reading, splits, checks, kinds of task and their metrics."""
