"""From raw files to clean, distinct documents in Parquet shards."""
