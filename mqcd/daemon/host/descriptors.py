"""Divides the process's descriptors, so that no part can exhaust another's share.

The limit is raised to the hard one at the start (`raise_limit`). `divide` then gives each part its share.
A connection counts as two descriptors: its socket, and the spool file of a large message that comes in or
goes out over it. What the shares do not cover (`engine`) is kept for the journal, clusters, logs and pipes.
"""

from __future__ import annotations

import logging
import resource

from mqcd.core.value import value

log = logging.getLogger(__name__)

LEAST = 256
"""Descriptors below which a server with a queue of the usual size cannot be relied on."""
_ENGINE = 112
"""Beside the segments of the journal: clusters, event files, logs, libraries, pipes to child processes."""
_OPS = 80
"""Connections of the ops pages and the control socket, and the sockets that listen."""
_MOST_LOOKUPS = 500
_MOST_CLIENTS = 20_000
"""Memory is the next thing to run out: a client may have 64 KB waiting to be read."""
_UNLIMITED = 1 << 20
_SEGMENTS = 8


@value
class Shares:
    """The share of each part, in connections and look-ups rather than descriptors."""

    engine: int
    """Descriptors for the queue and the process itself."""
    ops: int
    """Descriptors for the ops pages and the control socket."""
    lookups: int
    """DNS queries under way."""
    inbound: int
    """Connections from clients, over all listeners."""
    trusted: int
    """How many of `inbound` only clients in relay_clients may have."""
    outbound: int
    """Connections to next hops."""


def divide(limit: int, segments: int = _SEGMENTS) -> Shares:
    """The shares of `limit` descriptors, with `segments` files in the journal's ring."""
    engine, ops = _ENGINE + 2 * segments, _OPS
    if engine + ops > limit // 2:
        # Too few for all: half of them for the queue, and clients get the rest.
        engine, ops = limit * 3 // 8, limit // 8
    rest = limit - engine - ops
    lookups = max(min(rest // 16, _MOST_LOOKUPS), 1)
    connections = (rest - 2 * lookups) // 2
    inbound = max(min(connections // 2, _MOST_CLIENTS), 2)
    return Shares(
        engine=engine,
        ops=ops,
        lookups=lookups,
        inbound=inbound,
        trusted=max(inbound // 4, 1),
        outbound=max(connections - inbound, 1),
    )


def limit() -> int:
    """How many descriptors this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Let this process have as many descriptors as it may take by itself; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("the descriptor limit stays at %d, it cannot be raised to %d: %s", soft, hard, error)
    most = limit()
    if most < LEAST:
        log.warning(
            "only %d descriptors: few connections are possible; raise the limit to %d or more (LimitNOFILE=)",
            *(most, LEAST),
        )
    return most
