"""Connections to next hops: opened, used for attempt after attempt, kept, closed, within time limits.

`Pool` starts a `Worker` for each connection; `Connector` opens a `Link`, `attempt` tries one message over it.
Imports settling, recording, lanes, routing and smtp.
"""
