"""What tasks do in Python, past Java: read event files, fold recipients, write Parquet."""
