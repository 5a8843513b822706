"""All peers, by name, in the order of a round."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench.peers.classic import Exim, OpenSmtpd, Postfix
from tests.bench.peers.ours import Mqcd
from tests.bench.peers.peer import Peer
from tests.bench.peers.scripted import Aiosmtpd, Haraka, Slimta

PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Mqcd(),
        Postfix(),
        Exim(),
        OpenSmtpd(),
        Haraka(),
        Slimta(),
        Aiosmtpd(),
        Mqcd(1),
        Mqcd(2),
        Mqcd(4),
    )
}
DEFAULT = ("mqcd", "postfix", "exim", "opensmtpd", "haraka", "slimta", "aiosmtpd")
"""Of scenarios that name none."""
