"""Everything that learns a task, and the prediction of what was learned."""
