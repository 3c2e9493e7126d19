"""The prediction server: it follows the champion's alias, batches requests, and counts what it answers."""
