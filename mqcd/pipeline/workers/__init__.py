"""What tasks do in Python, past Java, and how far they are.

Imports pipeline.tables, pipeline.sources, pipeline.store.layout and core.
"""
