"""Live monitoring of a retraining: its runs in MLflow (`live`), and its gauges for Prometheus (`gauges`)."""
