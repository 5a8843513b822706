"""What tasks do in Python, past Java: read event files, fold recipients, write Parquet.

Imports pipeline.tables, pipeline.sources, pipeline.store.layout and core.
"""
