"""Live monitoring of a retraining: its runs in MLflow, and its gauges for Prometheus.

The flow and the stages append to files (`spool`, `components.measurements`). A process of its own reads them and writes
to MLflow (`forwarding`), so that neither waits for a server: what MLflow has not received stays in the files, and the
monitor of a later run sends it.
"""
