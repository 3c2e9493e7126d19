"""Ingestion of raw files: clean, distinct documents in Parquet shards; the built-in data."""
