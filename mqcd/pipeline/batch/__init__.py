"""A batch: new event files into every table, at once or not at all; as a run or as a stream.

Imports tables, workers, sources, store and spark.
"""
