"""Event logs of a small Internet that is made up, with what really happened in it written beside them.

    python -m tests.bench.eventlogs --seed 7 --events 5000000 --to DIR

writes DIR/events (files as a server leaves them below `ops/events/rootpath`) and DIR/truth. The truth comes
from the simulation's own state and never from the text of events, so tables and advice that are made of the
events can be held against it.
"""
