"""A door: one listening socket, its sessions, their deadlines, its opening and closing.

* `bind` takes the port; 0 is any free one (see `port`). No client can connect before `start`. Each raises
  OSError when the port cannot be had.
* Clients beyond the capacity that all doors share, or beyond maxpeerconnections from one address (IPv6: from
  one /64), get 421 before a session is made. relay_clients have a part of the capacity for themselves, and
  no limit for one address.
* A client in `proxies` has to begin with a PROXY header, within ten seconds; the address in it
  is the client for everything that follows.
* A session that is silent or lasts too long is ended; see `Session.check_deadline`.
* `stop` closes the socket, gives every session its 421 as soon as it is not committing, and waits for
  the replies to messages that are being committed. What is not done after `grace` ms is cut off.
* `close_door` and `open_door` refuse and admit new mail (4xx at MAIL) while sessions go on.
* `suppress` refuses recipients by a list, in all sessions, from the next RCPT on.
* `reload` takes over new <server> and <ssl> blocks for sessions that begin later; earlier ones keep the rules
  and limits that they have announced. Name, interface and port stay.

What counts a connection, and what ends that:

| | `Capacity`, of all doors | `Peers` | `Passing.count` | quota places |
|---|---|---|---|---|
| a proxy names its client: `_introduce` | + `taken` alone, for that time | | | |
| `receive` gives a session | + | + | called | |
| MAIL in the session | | | | + |
| `_open` finds the client gone already | - | - | called | |
| `leave` | - | - | called | - |

In `receive` the test of `Peers` counts, so it is the last: another reason to refuse goes before it.

Settings read: interface, port, name, proxies, maxpeerconnections, and those of `session`, `dialogue`,
`intake`, `policy`.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import socket
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mqcd.config.settings import ListenerSettings, ListenerSslSettings, ServerSettings, ZoneSettings
from mqcd.core.ports import Clock, MailTaker, Observer, Refusal, Resolver, UsedRates
from mqcd.core.queueing.holding import Holding
from mqcd.core.smtp.reply import Reply
from mqcd.core.smtp.tracing import Traces
from mqcd.net.listening import Acceptor, Take, bind, give_protocol
from mqcd.net.securing.server import ListenerTls
from mqcd.net.waits import in_time
from mqcd.submit.checks.listed import NetworkList
from mqcd.submit.esmtp.caller import STRANGER, Caller
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.message.received import DateCache
from mqcd.submit.message.zoning import Zoning
from mqcd.submit.policy.capacity import Capacity, Passing, Peers
from mqcd.submit.policy.greylist import Greylist
from mqcd.submit.policy.load import Load
from mqcd.submit.policy.quotas import SessionPlaces
from mqcd.submit.policy.rulemaking import Rulemaking
from mqcd.submit.policy.rules import CLIENT_LISTED, Suppressed
from mqcd.submit.session.connections import Unnamed, client_address, named_client
from mqcd.submit.session.desk import Desk, HeldMail
from mqcd.submit.session.intake import Intake
from mqcd.submit.session.session import Session
from mqcd.submit.session.traced import session_of
from mqcd.submit.session.view import SessionView, view_of
from mqcd.submit.users.logins import Logins

_BACKLOG = 1024
_LOOK_MS = 1000
"""Interval between deadline checks; a session may last that much longer."""
_TIMEOUT = Reply(code=421, status="4.4.2", text="Timeout, closing")
_STOPPING = Reply(code=421, status="4.3.2", text="Server is stopping, try again later")
_UNFILTERED = Reply(code=421, status="4.3.0", text="Mail cannot be checked here now, try again later")
_ELSEWHERE = Reply(code=421, status="4.3.2", text="No storage for mail here, connect again")
_TOO_MANY = Reply(code=421, status="4.7.0", text="Too many connections from your address")
_FULL = Reply(code=421, status="4.3.2", text="Too many connections, try again later")


class Door:
    """One listener of the server."""

    _elsewhere = False
    """Whether, at the last look, another process took mail and this one none."""

    def __init__(
        self,
        settings: ListenerSettings,
        store: MailTaker,
        clock: Clock,
        observer: Observer,
        *,
        inline_max: int,
        resolver: Resolver | None = None,
        zones: Sequence[ZoneSettings] = (),
        capacity: Capacity | None = None,
        passing: Passing | None = None,
        peers: Peers | None = None,
        logins: Logins | None = None,
        places: SessionPlaces | None = None,
        rates: UsedRates | None = None,
        greylist: Greylist | None = None,
        tls: ListenerTls | None = None,
        local: bool = False,
        load: Load | None = None,
    ) -> None:
        """`inline_max`: octets up to which content goes to the store whole. `resolver` looks up the host
        names in relay_clients. `zones`: those whose headers choose the zone of a message. `capacity`: the
        connections of all doors; None = no limit. `passing` may take a new
        connection elsewhere. `peers` counts connections by client, None = here alone. `logins`: what all
        doors share for them, None = this door has its own. `places` and `rates`
        count what quotas limit, None = here alone. `greylist`: None = all mail passes it. `tls`: the
        certificates of a listener that has some. `local`: its clients are programs on this machine. `load`:
        of the process, None = this door has its own."""
        self.settings = settings
        self._clock = clock
        self._observer = observer
        self.logins = logins or Logins()
        self.tls = tls or ListenerTls()
        self._load = load or Load(clock.monotonic)
        self._places = places or SessionPlaces()
        self._rulemaking = Rulemaking(
            settings, clock, resolver, self.logins, places=self._places, rates=rates, local=local
        )
        self._rulemaking.gate.load = self._load
        desk = Desk(clock, resolver, self.logins, greylist)
        self.intake = self._make_intake(store, inline_max, desk, zones)
        self._capacity = capacity or Capacity(sys.maxsize)
        self._passing = passing
        self.proxies = NetworkList(settings.proxies)
        self._acceptor: Acceptor | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._introductions: set[asyncio.Task[None]] = set()
        """Those of them that a stop need not wait for."""
        # From the time on, so that no two runs give the same name.
        self._numbers = itertools.count(clock.now())
        self._sessions: set[Session] = set()
        self._peers = peers or Peers()
        self._deadlines: asyncio.Task[None] | None = None
        self._stopping = False
        self._empty = asyncio.Event()
        self.traces = Traces(clock.now)
        """The traces that apply to sessions that begin; all doors of a server have the same."""
        self.port = settings.port
        """TCP port; the bound one once started."""

    def _make_intake(
        self, store: MailTaker, inline_max: int, desk: Desk, zones: Sequence[ZoneSettings]
    ) -> Intake:
        return Intake(
            store=store,
            clock=self._clock,
            book=self._rulemaking.current.book,
            listener=self.settings.name,
            inline_max=inline_max,
            dates=DateCache(),
            desk=desk,
            load=self._load,
            zoning=Zoning(zones),
        )

    @property
    def sessions(self) -> int:
        """Connections that are open."""
        return len(self._sessions)

    def views(self) -> Sequence[SessionView]:
        """Its sessions as operators see them."""
        now = self._clock.monotonic()
        return [view_of(each.dialogue, now - each.deadlines.began) for each in self._sessions]

    @property
    def waiting(self) -> int:
        """Connections of proxies that have not named their client yet."""
        return len(self._introductions)

    @property
    def held(self) -> int:
        """Received octets, over all connections, that are not read yet."""
        return sum(session.wire.held for session in self._sessions)

    async def bind(self) -> None:
        """Take the port. Raises OSError when it or the interface cannot be had."""
        self.adopt(await bind(self.settings.interface, self.settings.port))

    def adopt(self, sockets: Sequence[socket.socket], take: Take | None = None) -> None:
        """Use already bound sockets instead of `bind`. `take` gets connections instead, and calls `admit`."""
        self._acceptor = Acceptor(sockets, take or self._take, self._clock)
        self.port = self._acceptor.port

    async def start(self, *, takes: bool = True) -> None:
        """Listen, after `bind` or with it. Raises OSError; BadFilter, BadList and BadUsers where the filter
        cannot be made, the blacklist or the users cannot be read. `takes`: whether mail can come, which needs
        these."""
        loop = asyncio.get_running_loop()
        if takes:
            await self._rulemaking.load()
            self._go_by_rules()
        if self._acceptor is None:
            await self.bind()
        if self._acceptor is not None and not self._stopping:
            self._acceptor.listen(_BACKLOG)
        self._deadlines = loop.create_task(self._watch_deadlines())
        self._rulemaking.start()

    async def stop(self, grace: int = 8000) -> None:
        """Accept no client, finish commits, reply 421 to all other sessions. Returns when all sessions have
        ended."""
        self._stopping = True
        if self._acceptor is not None:
            self._acceptor.close()
        for introduction in self._introductions:
            introduction.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        for session in list(self._sessions):
            session.interrupt(_STOPPING)
        if self._sessions:
            await self._await_empty(grace)
        for session in list(self._sessions):
            session.cut()
        if self._sessions:
            await self._empty.wait()
        if self._deadlines is not None:
            self._deadlines.cancel()
            await asyncio.gather(self._deadlines, return_exceptions=True)
        await self._rulemaking.stop()

    def reload(self, server: ServerSettings, ssl: ListenerSslSettings | None = None) -> None:
        """Apply a new <server> block at once, and a new <ssl> (None = the old one), for whose certificates
        the caller sees to `tls`; host names are looked up meanwhile. Where a filter, a list or the users
        cannot be had, that is logged, and both old blocks stay.
        """
        self._rulemaking.reload(server, ssl or self.settings.ssl)
        current = self._rulemaking.current
        self.settings = replace(self.settings, server=current.server, ssl=current.ssl)
        self._go_by_rules()
        self.look_at_files()

    def _go_by_rules(self) -> None:
        current = self._rulemaking.current
        if current.handlers:
            # With aiosmtpd, which a server without filters does not need; sessions must not wait for it.
            importlib.import_module("mqcd.submit.session.filtering")
        self.intake.book = current.book

    def look_at_files(self) -> None:
        """Read the files of users and the blacklist again, soon, where they have
        changed, and look host names up again."""
        if self._deadlines is not None and not self._stopping:
            self._rulemaking.start()

    def assign(self, zones: Sequence[ZoneSettings]) -> None:
        """Choose zones for new messages by the headers that these zones name."""
        self.intake.zoning = Zoning(zones)

    def close_door(self, reply: Reply) -> None:
        """Answer MAIL with `reply` (4yz) from now on; messages under way go on."""
        if not 400 <= reply.code < 500:
            raise ValueError(f"a closed door says 4yz, not {reply}")
        self._rulemaking.gate.closed = reply

    def open_door(self) -> None:
        """Accept new mail again."""
        self._rulemaking.gate.closed = None

    def hold(self, holding: Holding, held: HeldMail) -> None:
        """Whose mail is held from now on, and where it is asked for."""
        self._rulemaking.gate.holding = holding
        self.intake.desk.held = held

    def suppress(self, suppressed: Suppressed | None) -> None:
        """Refuse these recipients from now on; None = none."""
        self._rulemaking.gate.suppressed = suppressed

    def trusts(self, client: str) -> bool:
        """Whether `relay_clients` lists the client with this IP address."""
        return self.intake.book.common.policy.trusts(client)

    def receive(self, client: str, caller: Caller = STRANGER) -> Session:
        """A session for a new client, which counts from now on. Raises DoorRefused above a limit."""
        trusted = self.trusts(client)
        rules = self.intake.book.of(client)
        limit = rules.settings.maxpeerconnections
        if self._stopping:
            raise DoorRefused(Reason.CLOSED, _STOPPING)
        if rules.unfiltered:
            raise DoorRefused(Reason.CLOSED, _UNFILTERED)
        if rules.blacklist.clients.has(client):
            raise DoorRefused(Reason.BLACKLIST, CLIENT_LISTED)
        if (closed := self._load.closed()) is not None:
            raise DoorRefused(*closed)
        if self._capacity.full(client, trusted):
            raise DoorRefused(Reason.CONNECTIONS, _FULL)
        if not self._peers.add(client or caller.user, 0 if trusted else limit):
            raise DoorRefused(Reason.CONNECTIONS, _TOO_MANY)
        self._capacity.add(client)
        if self._passing is not None:
            self._passing.count(self._capacity.taken)
        name = f"{self.settings.name}-{next(self._numbers):x}"
        return session_of(self, self.traces, rules, name, client, caller)

    def enter(self, session: Session) -> None:
        """The connection is established."""
        self._sessions.add(session)

    def leave(self, session: Session) -> None:
        """The connection has closed, and no commit is under way for it."""
        self._sessions.discard(session)
        self._places.leave(session.dialogue.quota_places)
        self._forget(session)
        if self._stopping and not self._sessions:
            self._empty.set()

    def refused(self, refusal: Refusal) -> None:
        """Pass a refusal on."""
        self._observer.refused(self._clock.now(), refusal)

    def _forget(self, session: Session) -> None:
        dialogue = session.dialogue
        self._capacity.remove(dialogue.client)
        if self._passing is not None:
            self._passing.count(self._capacity.taken)
        self._peers.remove(dialogue.client or dialogue.caller.user)

    def _take(self, connection: socket.socket, peer: object) -> None:
        """A client has connected."""
        if self._passing is None or not self._passing.passes(connection, self._capacity.taken):
            self.admit(connection, peer)

    def admit(self, connection: socket.socket, peer: object, caller: Caller = STRANGER) -> None:
        """Greet a client, or refuse it; of a proxy once it has named its client."""
        client = client_address(peer)
        if self.proxies.has(client):
            introduction = self._begin(self._introduce(connection, client))
            self._introductions.add(introduction)
            introduction.add_done_callback(self._introductions.discard)
        else:
            self._welcome(connection, client, caller)

    def _begin(self, opening: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(opening)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return task

    async def _introduce(self, connection: socket.socket, proxy: str) -> None:
        """Read from the proxy the address of the client, for all that follows."""
        self._capacity.taken += 1
        try:
            client = await named_client(connection, self._clock)
        except Unnamed as error:
            connection.close()
            reply = Reply(code=421, status="4.7.0", text=f"{error}, closing")
            self.refused(Refusal(reason=Reason.PROXY, reply=reply, listener=self.settings.name, client=proxy))
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        finally:
            self._capacity.taken -= 1
        self._welcome(connection, client or proxy)

    def _welcome(self, connection: socket.socket, client: str, caller: Caller = STRANGER) -> None:
        try:
            session = self.receive(client, caller)
        except DoorRefused as error:
            # Where TLS comes first a reply without it would look like broken TLS.
            if not self.intake.book.of(client).tls_first:
                with suppress(OSError):
                    connection.send(error.reply.encode())
            connection.close()
            self.refused(
                Refusal(reason=error.reason, reply=error.reply, listener=self.settings.name, client=client)
            )
            return
        self._begin(self._open(session, connection))

    async def _open(self, session: Session, connection: socket.socket) -> None:
        if not await give_protocol(connection, lambda: session) and session not in self._sessions:
            self._forget(session)

    async def _await_empty(self, grace: int) -> None:
        with suppress(TimeoutError):
            await in_time(self._clock, grace, self._empty.wait())

    async def _watch_deadlines(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_MS)
            if self._passing is not None:
                self._send_elsewhere(self._passing)
            now = self._clock.monotonic()
            for session in list(self._sessions):
                session.check_deadline(now, _TIMEOUT)

    def _send_elsewhere(self, passing: Passing) -> None:
        """End all sessions once no mail is taken here at two looks in a row: another process takes it."""
        passing.count(self._capacity.taken)
        # Of this door's own looks: another door may count at any time.
        before, self._elsewhere = self._elsewhere, passing.elsewhere()
        if before and self._elsewhere:
            for session in list(self._sessions):
                session.interrupt(_ELSEWHERE)
