"""Spark data sources for what the server writes: `mqcd-events` and `mqc`."""
