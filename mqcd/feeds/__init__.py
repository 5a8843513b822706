"""Feeds: the event log, sent on to webhooks and to a collector of traces. They read its files alone.

Promise: each event of the log that a feed selects is sent at least once, in the order of its shard's files,
as long as its file is there. A receiver that is slow or away costs the server nothing: its feed waits.

May import core, config, disk, net and eventlog. The process around it is `mqcd.daemon.feeds`.
"""
