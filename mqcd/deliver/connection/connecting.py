"""Connects to a host of a destination that accepts mail: hosts by preference, each by its addresses.

Guarantees: at most `MAX_ADDRESSES` are tried. Where TLS is opportunistic (policy `may`, RFC 7435) a host
whose TLS fails is tried again without it at once, and not asked for it for CLEAR_MS;
where TLS is required (encrypt, verify), or offered where a login is configured, nothing goes without it
(4.7.5), nor where the TLS files of this server cannot be loaded (4.3.5). Where a source address cannot be
used its zone's next one of the family is. A shortage on this machine ends the search. The outcome without a
usable host is permanent only if DNS is certain that no MX host exists (5.4.4), or none that mail is sent to:
an address of this machine, a loopback or link-local one (5.4.6; not where `local_mx` allows it, nor of a
relay).

Of the networks in `remotenets` that hold an address the first in the file counts for the client's options;
settings it leaves out are the common ones. It changes what the client's settings say, not what a zone, a
destination or a relay does.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from mqcd.config.settings import ClientSettings, RemoteNetSettings, TlsPolicy
from mqcd.core.errors import (
    ConnectFailed,
    LocalShortage,
    LookupShortage,
    NameNotFound,
    ResolveFailed,
    SourceUnavailable,
    TlsFilesUnusable,
)
from mqcd.core.model import Attempt, Phase
from mqcd.core.ports import Dialer, Observer, Resolver
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.connection.link import Link
from mqcd.deliver.connection.timers import Sweep
from mqcd.deliver.connection.traced import link_of
from mqcd.deliver.routing.policy import Hop, sources_for, tls_of
from mqcd.deliver.routing.routing import order, unfit, within
from mqcd.deliver.smtp.exchange import Options
from mqcd.deliver.smtp.handshake import local
from mqcd.deliver.smtp.states import State
from mqcd.deliver.terms import Terms

MAX_ADDRESSES = 5
"""Addresses that one attempt tries at most (RFC 5321, 5.1 asks for two)."""

CLEAR_MS = 600_000
"""Time for which TLS is not tried again."""
MAX_REMEMBERED = 10_000

_SILENT_MS = 60_000

_log = logging.getLogger("mqcd.deliver")


@value
class NoHost:
    """No host of the destination takes mail; describes the most informative failure, of equals the last
    one."""

    reply: Reply
    attempt: Attempt
    """Its details; without a session no connection was tried."""
    source_failed: bool = False
    """The source address was at fault."""
    loops: bool = False
    """The host is this machine."""
    shortage: bool = False
    """This machine had no descriptor, port or buffer left: no destination is at fault."""

    @property
    def phase(self) -> Phase:
        """Where the attempt ended."""
        return self.attempt.phase


@value(kw_only=False)
class _Road:
    """One way to one host."""

    hop: Hop
    client: ClientSettings
    """The options for the address."""
    host: str
    address: str
    source: str
    """Source address; "" = the system's choice."""


@dataclass(eq=False, repr=False)
class Connector:
    """One per deliverer."""

    _terms: Terms
    _resolver: Resolver
    dialer: Dialer
    _observer: Observer
    _sweep: Sweep
    _clear_until: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """Addresses whose TLS failed lately: not every connection tries it again."""
    _named: int = 0
    """Connections named so far, counted from when the first one was."""
    _silent_until: int = 0
    """No shortage is logged again before this time, monotonic ms."""

    async def connect(self, hop: Hop, turn: int) -> Link | NoHost:
        """A link in state READY, or why there is none. `turn` lets equal hosts, and equal own addresses, take
        the lead in turns."""
        destination = hop.destination
        missing = NoHost(
            reply=Reply(
                code=451 if destination.relay else 550,
                status="4.4.4" if destination.relay else "5.4.4",
                text=f"no host of {destination.name} has an address",
            ),
            attempt=_unopened(hop, Phase.ROUTE),
        )
        worst = missing
        tried = 0
        for host in order(destination, turn):
            addresses = await self._look_up(hop, host)
            if isinstance(addresses, NoHost):
                # Most informative: a tried address, then a temporary failure, then a permanent one.
                if worst is missing or (worst.phase is Phase.ROUTE and addresses.reply.code < 500):
                    worst = addresses
                if addresses.loops:
                    break
                continue
            for address in addresses:
                if tried == MAX_ADDRESSES:
                    return worst
                found = await self._reach(hop, host, address, turn)
                if isinstance(found, Link) or found.shortage:
                    return found
                # An address of a family that its zone has none of was not tried.
                tried += bool(found.attempt.session)
                if _informative(found) >= _informative(worst):
                    worst = found
        return worst

    async def leave(self, link: Link) -> None:
        """End a link that carries no mail."""
        try:
            await link.quit()
        finally:
            link.close()
            self._sweep.discard(link)

    def log_shortage(self, reply: Reply) -> None:
        """Log a shortage of this machine, at most once a minute."""
        now = self._terms.clock.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + _SILENT_MS
            _log.warning("%s; mail waits, no destination is suspended", reply.text)

    def _new_session(self) -> str:
        """A name for a connection in the log; no two runs give the same one."""
        # Runs begin at different times, and connections are not opened by thousands a second.
        self._named = self._named + 1 if self._named else self._terms.clock.now()
        return f"out-{self._named:x}"

    async def _look_up(self, hop: Hop, host: str) -> Sequence[str] | NoHost:
        """The addresses of a host that may be tried, none where it has none; or why they are unknown."""
        try:
            found = await self._resolver.addresses(host)
        except NameNotFound:
            return ()
        except ResolveFailed as error:
            reply = Reply(code=451, status="4.4.3", text=f"no answer from DNS: {error}")
            attempt = _unopened(hop, Phase.ROUTE, host)
            return NoHost(reply=reply, attempt=attempt, shortage=isinstance(error, LookupShortage))
        if not found or hop.destination.relay or self._terms.settings.local_mx:
            return found
        whys = {address: unfit(address) for address in found}
        own = [address for address, why in whys.items() if not why and self.dialer.is_own(address)]
        if not own and (fit := [address for address, why in whys.items() if not why]):
            return fit
        # Hosts that are not preferred to this machine would only send the mail back (RFC 5321, 5.1).
        address, why = (own[0], "own") if own else next(iter(whys.items()))
        text = f"{host} [{address}] refused as a mail host: {why}"
        reply = Reply(code=550, status="5.4.6", text=text)
        return NoHost(reply=reply, attempt=_unopened(hop, Phase.ROUTE, host), loops=bool(own))

    async def _reach(self, hop: Hop, host: str, address: str, turn: int) -> Link | NoHost:
        """One address, from the first source address that can be used."""
        policy = hop.policy
        sources = sources_for(policy.sources, address, turn)
        text = f"zone {policy.zone} has no source address for {host} [{address}]"
        reply = Reply(code=451, status="4.4.1", text=text)
        found: Link | NoHost = NoHost(reply=reply, attempt=_unopened(hop, Phase.CONNECT, host, address))
        for source in sources:
            found = await self._reach_from(hop, host, address, source)
            if isinstance(found, Link) or not found.source_failed:
                break
        return found

    async def _reach_from(self, hop: Hop, host: str, address: str, source: str) -> Link | NoHost:
        """Connect in clear where TLS is opportunistic and fails."""
        usual = self._terms.settings.client
        client = client_for(usual, address) if usual.remotenets else usual
        options = options_for(client, usual, hop)
        opportunistic = options.tls is TlsPolicy.MAY and not options.implicit_tls and not options.checked
        if opportunistic and self._clear_until.get(address, 0) > self._terms.clock.monotonic():
            options, opportunistic = replace(options, tls=TlsPolicy.NONE), False
        road = _Road(hop, client, host, address, source)
        found = await self._try(road, options)
        if opportunistic and isinstance(found, NoHost) and _tls_failed(found):
            _log.info(
                "TLS with %s [%s] failed, sending in clear: %s",
                *(host, address, found.reply.text),
                extra={"session": found.attempt.session},
            )
            self._send_in_clear(address)
            found = await self._try(road, replace(options, tls=TlsPolicy.NONE))
        return found

    def _send_in_clear(self, address: str) -> None:
        """Do not try TLS there for a time."""
        self._clear_until[address] = self._terms.clock.monotonic() + CLEAR_MS
        self._clear_until.move_to_end(address)
        if len(self._clear_until) > MAX_REMEMBERED:
            self._clear_until.popitem(last=False)

    async def _try(self, road: _Road, options: Options) -> Link | NoHost:
        names = (road.host, road.address, self._new_session(), road.hop.destination.name)
        link = link_of(self._terms, road.client, options, *names)
        self._sweep.add(link)
        found: Link | NoHost | None = None
        try:
            found = await self._open(road, link)
        finally:
            if found is not link:
                link.leave()
                self._sweep.discard(link)
        return found

    async def _open(self, road: _Road, link: Link) -> Link | NoHost:
        hop, host, address = road.hop, road.host, road.address
        tried = replace(link.attempt(hop, Phase.CONNECT), source_addr=road.source)
        try:
            await link.open(self.dialer, hop.destination.port, road.source)
        except LocalShortage as error:
            # Not a failure of the destination: an observer that counts failures would take all for dead.
            return _short(tried, error)
        except ConnectFailed as error:
            self._observer.connect_failed(self._terms.clock.now(), tried, str(error))
            reply = Reply(code=451, status="4.4.1", text=f"no connection to {host} [{address}]: {error}")
            return NoHost(reply=reply, attempt=tried, source_failed=isinstance(error, SourceUnavailable))
        self._observer.connected(self._terms.clock.now(), link.attempt(hop, Phase.CONNECT))
        try:
            state = await link.greet()
        except LocalShortage as error:
            return _short(link.attempt(hop, Phase.TLS), error)
        except TlsFilesUnusable as error:
            reply = local("4.3.5", str(error))
            return NoHost(reply=reply, attempt=link.attempt(hop, Phase.TLS))
        except ConnectFailed as error:
            reply = local("4.7.5", f"{error}; {host} [{address}]")
            return NoHost(reply=reply, attempt=link.attempt(hop, Phase.TLS))
        if state is State.READY:
            return link
        reply = link.smtp.end or local("4.4.2", "session ended")
        return NoHost(reply=reply, attempt=link.attempt(hop, link.phase))


def _informative(found: NoHost) -> int:
    """How informative a failure is: a refusal says more than a server that was not reached."""
    return {Phase.ROUTE: 0, Phase.CONNECT: 1}.get(found.phase, 2)


def _tls_failed(found: NoHost) -> bool:
    """Whether TLS does not work there. Tampering with its beginning (4.7.0) does not count, nor do TLS files
    of this server (4.3.5) or a shortage."""
    return found.phase is Phase.TLS and found.reply.status not in ("4.7.0", "4.3.5") and not found.shortage


def _short(attempt: Attempt, error: LocalShortage) -> NoHost:
    reply = local("4.3.0", f"cannot open a connection: {error}")
    return NoHost(reply=reply, attempt=attempt, shortage=True)


def _unopened(hop: Hop, phase: Phase, host: str = "", address: str = "") -> Attempt:
    """An attempt without a connection."""
    name, zone = hop.destination.name, hop.policy.zone
    return Attempt(destination=name, zone=zone, phase=phase, remote_host=host, remote_addr=address)


_OVERRIDES = [each.name for each in fields(RemoteNetSettings) if each.name != "ip"]


def client_for(client: ClientSettings, address: str) -> ClientSettings:
    """The settings that hold for an IP address."""
    for network in client.remotenets:
        if within(network.ip, address):
            given = {name: getattr(network, name) for name in _OVERRIDES}
            return replace(
                client, **{name: value for name, value in given.items() if value not in (None, "")}
            )
    return client


def options_for(client: ClientSettings, usual: ClientSettings, hop: Hop) -> Options:
    """The options for a host of a hop: `client` applies to its address, `usual` to all."""
    policy = hop.policy
    hello, tls = policy.helo, policy.tls
    if client is not usual:
        if hello == usual.announcehost:
            hello = client.announcehost
        if not policy.tls_chosen:
            tls = tls_of(client)
    return Options(
        hello=hello,
        maxpipeline=client.maxpipeline,
        say_helo=client.say_helo,
        fallback_helo=client.fallback_helo,
        chunking=client.ext_chunking,
        lmtp=policy.lmtp,
        relay=hop.destination.relay,
        tls=tls,
        implicit_tls=policy.implicit_tls,
        checked=policy.checked,
        trust=str(client.trust or ""),
        certificate=policy.certificate,
        key=policy.key,
        login=policy.login,
    )
