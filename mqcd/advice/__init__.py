"""Advice as files that people decide on: proposed, in effect, cancelled.

May import `config` and `disk`. The pipeline makes proposals; commands and the page apply and cancel them.
"""
