"""Advice from the tables: what to suppress, how to shape, and what another schedule would have done.

`decisions` and `replay` are pure and know nothing of Spark; `suppressing`, `pressure`, `curve` and `outages`
turn tables into the small sums that those decide by; `making` puts it together.
"""
