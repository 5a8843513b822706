"""The tables, each a pure function of frames: nothing here reads, writes or gathers anything.

Imports pipeline.sources and core.
"""
