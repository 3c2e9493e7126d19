"""Fine-tuning: training of task models on labelled rows."""
