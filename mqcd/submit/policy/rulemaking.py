"""The rules of one door: made of its settings, the files that they name and the addresses of hosts in them,
and kept up to date.

* Host names in relay_clients and remotenets are looked up from the start on, at a reload, and again every ten
  minutes (every 30 s while one could not be), by their addresses: the name that an address claims to have
  proves nothing. The start does not wait for DNS. A name that DNS does not answer for keeps its last
  addresses; before it has any, refusals to relay are temporary. Without a resolver they are never known.
* The files of users and of the blacklist are read at the start, and every two seconds if they have changed.

Settings read: the whole <server> block, and <ssl>.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from mqcd.config.kinds.overriding import given
from mqcd.config.settings import (
    ListenerProtocol,
    ListenerSettings,
    ListenerSslSettings,
    NetworkSettings,
    ServerSettings,
)
from mqcd.core.errors import NameNotFound, ResolveFailed
from mqcd.core.ports import Clock, Resolver
from mqcd.core.ports import UsedRates as UsedRatesPort
from mqcd.net.shared.used_rates import UsedRates
from mqcd.submit.auth.login import Access
from mqcd.submit.auth.senders import Senders
from mqcd.submit.checks.listed import BadList
from mqcd.submit.filters.handlers import BadFilter, FilterKey, Handler, filter_key, make_handler
from mqcd.submit.policy.blacklists import BlacklistFile
from mqcd.submit.policy.local import for_programs
from mqcd.submit.policy.quotas import Quotas, SessionPlaces
from mqcd.submit.policy.relay import RelayPolicy, host_names, relay_policy
from mqcd.submit.policy.rules import Gate, Rulebook, Rules
from mqcd.submit.users.directory import Directory
from mqcd.submit.users.lines import BadUsers
from mqcd.submit.users.logins import Logins

log = logging.getLogger(__name__)

_LOOKUP_MS = 600_000
_LOOKUP_SOON_MS = 30_000
_FILES_MS = 2000
"""Interval between looks at the files of users and of the blacklist."""


def _blocks(server: ServerSettings) -> Sequence[ServerSettings]:
    """How all clients are served, and those of each of `remotenets`."""
    return [server, *(replace(server, **given(each, NetworkSettings)) for each in server.remotenets)]


def _blacklists_of(server: ServerSettings) -> set[Path]:
    """Those that are switched on."""
    blocks = _blocks(server)
    return {each.blacklist for each in blocks if each.blacklist is not None and each.blacklist_enabled}


class Rulemaking:
    """One door's. Its tasks run from `start` to `stop`."""

    def __init__(
        self,
        settings: ListenerSettings,
        clock: Clock,
        resolver: Resolver | None,
        logins: Logins,
        *,
        places: SessionPlaces,
        rates: UsedRatesPort | None,
        local: bool = False,
    ) -> None:
        """`rates`: what quotas are counted in, None = here alone. `local`: of programs on this machine."""
        self._local = local
        self.server = settings.server
        self.ssl = settings.ssl
        self._lmtp = settings.protocol is ListenerProtocol.LMTP
        self._odmr = settings.protocol is ListenerProtocol.ODMR
        self._listener = settings.name
        self._places = places
        self._rates = rates
        self.gate = Gate()
        self._clock = clock
        self._resolver = resolver
        self._logins = logins
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._blacklists: dict[Path, BlacklistFile] = {}
        self._chores: list[asyncio.Task[None]] = []
        self.handlers: dict[FilterKey, Handler] = {}
        """The filters, by their setting."""
        self.book = self._make_book()

    async def load(self) -> None:
        """Make the filters, read the files. Raises BadFilter, BadList, BadUsers."""
        self._take_filters(self.server)
        for blacklist in self._blacklists.values():
            await asyncio.to_thread(blacklist.load)
        self._apply_blacklists()
        if (users := self._users) is not None:
            await asyncio.to_thread(users.load)

    def start(self) -> None:
        """Begin to keep everything up to date, or begin anew and look at once."""
        for chore in self._chores:
            chore.cancel()
        loop = asyncio.get_running_loop()
        self._chores = [loop.create_task(self._keep_looking_up()), loop.create_task(self._keep_files())]

    async def stop(self) -> None:
        """End what `start` began."""
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)

    def reload(self, server: ServerSettings, ssl: ListenerSslSettings) -> None:
        """Apply new <server> and <ssl> blocks. Filters, lists and users that cannot be had are logged;
        the old ones stay."""
        try:
            self._take_filters(server)
        except BadFilter as error:
            log.error("the old filters stay: %s", error)
            server = replace(server, filter=self.server.filter, remotenets=self.server.remotenets)
        try:
            self._read_new_blacklists(server)
        except BadList as error:
            log.error("the old blacklists stay: %s", error)
            server = replace(server, blacklist=self.server.blacklist, remotenets=self.server.remotenets)
        if server.users != self.server.users and server.users is not None:
            try:
                self._logins.directory(server.users).load()
            except BadUsers as error:
                log.error("the old users stay: %s", error)
                server = replace(server, users=self.server.users)
        self.server, self.ssl = server, ssl
        self.book = self._make_book()

    def _read_new_blacklists(self, server: ServerSettings) -> None:
        for path in _blacklists_of(server) - self._blacklists.keys():
            file = BlacklistFile(path)
            file.load()
            self._blacklists[path] = file

    def _make_book(self) -> Rulebook:
        server, known = self.server, self._blacklists
        self._blacklists = {path: known.get(path) or BlacklistFile(path) for path in _blacklists_of(server)}
        policy = relay_policy(server, self._resolved)
        common, *others = (self._make_rules(each, policy) for each in _blocks(server))
        book = Rulebook(common, [(each.ip, own) for each, own in zip(server.remotenets, others, strict=True)])
        book.resolve(policy, self._resolved)
        quotas = self._make_quotas() if server.quotas else None
        for rules in book:
            rules.quotas = quotas
        self._apply_blacklists(book)
        return book

    def _make_quotas(self) -> Quotas:
        self._rates = self._rates or UsedRates.alone()
        return Quotas(self.server, self._listener, self._rates, self._places, self._clock.monotonic)

    def _make_rules(self, server: ServerSettings, policy: RelayPolicy) -> Rules:
        users = self._users
        if users is None:
            rules = Rules(server, policy, self.gate, now=self._clock.now, ssl=self.ssl, lmtp=self._lmtp)
            return for_programs(rules) if self._local else rules
        access = Access(
            types=server.authtypes,
            tls_types=server.authtypes_ssl,
            mandatory=server.authtypes_mandatory,
            compat=server.authtypes_compat,
            book=users,
            failures=self._logins.failures,
            senders=Senders(server.senders, {policy.own_domain, *policy.domains}),
            host=server.announcehost or "localhost",
            now=self._clock.monotonic,
            nonce=secrets.token_urlsafe,
        )
        now = self._clock.now
        return Rules(server, policy, self.gate, access, now, self.ssl, self._lmtp, self._odmr)

    @property
    def _users(self) -> Directory | None:
        path = self.server.users
        return None if path is None else self._logins.directory(path)

    def _take_filters(self, server: ServerSettings) -> None:
        """One handler for each filter that the settings name; existing ones stay."""
        keys = {filter_key(each) for each in _blocks(server) if each.filter}
        self.handlers = {key: self.handlers.get(key) or make_handler(*key) for key in keys}

    def _apply_blacklists(self, book: Rulebook | None = None) -> None:
        for rules in book or self.book:
            path = rules.settings.blacklist
            if path is not None and rules.settings.blacklist_enabled:
                rules.blacklist = self._blacklists[path].listed

    async def _keep_files(self) -> None:
        while True:
            if (users := self._users) is not None:
                await asyncio.to_thread(users.look)
            for blacklist in list(self._blacklists.values()):
                await asyncio.to_thread(blacklist.look)
            self._apply_blacklists()
            await self._clock.sleep(_FILES_MS)

    async def _keep_looking_up(self) -> None:
        while True:
            known = await self._look_up()
            await self._clock.sleep(_LOOKUP_MS if known else _LOOKUP_SOON_MS)

    async def _look_up(self) -> bool:
        """Go by the current addresses of the host names in relay_clients and remotenets. Whether all names
        have been looked up at some time."""
        hosts = chain(self.server.relay_clients, *(each.ip for each in self.server.remotenets))
        names = host_names(list(hosts))
        if self._resolver is None or not names:
            return True
        await asyncio.gather(*(self._look_up_one(self._resolver, name) for name in names))
        self.book.resolve(relay_policy(self.server, self._resolved), self._resolved)
        return all(name in self._resolved for name in names)

    async def _look_up_one(self, resolver: Resolver, name: str) -> None:
        try:
            self._resolved[name] = tuple(await resolver.addresses(name))
        except NameNotFound:
            self._resolved[name] = ()
            log.warning("relay_clients, remotenets: host %s does not exist; it is no client", name)
        except ResolveFailed as error:
            log.warning(
                "relay_clients, remotenets: host %s keeps its last addresses, if any: %s", name, error
            )
