"""The rules of one door: made of its settings, the files that they name and the addresses of hosts in them,
and kept up to date.

* The rules are one set (`RuleSet`), made whole, then exchanged in one step. Where a filter, a list or the
  users of new settings cannot be had, the old set stays as it is, whatever else is new.
* Until `load` there are no filters, lists and users. Rules without the filter that they name refuse all
  sessions (`Rules.unfiltered`).
* Host names in relay_clients and remotenets are looked up from the start on, at a reload, and again every ten
  minutes (every 30 s until each has been once), by their addresses: the name that an address claims to have
  proves nothing. The start does not wait for DNS. A name that DNS does not answer for keeps its last
  addresses; before it has any, refusals to relay are temporary. Without a resolver they are never known.
* The files of users and of the blacklist are read at the start, and every two seconds if they have changed.

Settings read: the whole <server> block, and <ssl>.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from mqcd.core.value import value
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


@value
class RuleSet:
    """All that a door goes by, made of the same settings."""

    server: ServerSettings
    ssl: ListenerSslSettings
    handlers: Mapping[FilterKey, Handler]
    """The filters, by their setting."""
    blacklists: Mapping[Path, BlacklistFile]
    """The lists that are switched on, each read at least once."""
    book: Rulebook

    def apply_blacklists(self) -> None:
        """Go by what the lists say now."""
        for rules in self.book:
            path = rules.settings.blacklist if rules.settings.blacklist_enabled else None
            file = None if path is None else self.blacklists.get(path)
            if file is not None:
                rules.blacklist = file.listed


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
        self._chores: list[asyncio.Task[None]] = []
        self.current = self._make(settings.server, settings.ssl, {}, {})
        """What the door goes by now."""

    async def load(self) -> None:
        """Make the filters, read the files. Raises BadFilter, BadList, BadUsers."""
        begun = self.current
        handlers = self._make_handlers(begun.server)
        blacklists = await asyncio.to_thread(self._read_blacklists, begun.server)
        if (users := self._users(begun.server)) is not None:
            await asyncio.to_thread(users.load)
        # If `current` changed, a reload has already installed a complete set.
        if self.current is begun:
            self.current = self._make(begun.server, begun.ssl, handlers, blacklists)

    def start(self) -> None:
        """Begin to keep everything up to date, or begin anew and look at once."""
        for chore in self._chores:
            chore.cancel()
        loop = asyncio.get_running_loop()
        lookups, files = loop.create_task(self._keep_looking_up()), loop.create_task(self._keep_files())
        lookups.add_done_callback(partial(self._log_failure, "host names are not looked up"))
        files.add_done_callback(partial(self._log_failure, "files are not looked at"))
        self._chores = [lookups, files]

    async def stop(self) -> None:
        """End what `start` began."""
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)

    def reload(self, server: ServerSettings, ssl: ListenerSslSettings) -> None:
        """Apply new <server> and <ssl> blocks, or log what of them cannot be had, and apply nothing."""
        try:
            handlers = self._make_handlers(server)
            blacklists = self._read_blacklists(server)
            users = self._users(server)
            if users is not None and server.users != self.current.server.users:
                users.load()
        except (BadFilter, BadList, BadUsers) as error:
            log.error(
                "listener %s: the old settings stay, the next SIGHUP tries the new ones again: %s",
                *(self._listener, error),
            )
            return
        self.current = self._make(server, ssl, handlers, blacklists)

    def _make_handlers(self, server: ServerSettings) -> Mapping[FilterKey, Handler]:
        """One for each filter that the settings name; existing ones stay."""
        known = self.current.handlers
        keys = {filter_key(each) for each in _blocks(server) if each.filter}
        return {key: known.get(key) or make_handler(*key) for key in keys}

    def _read_blacklists(self, server: ServerSettings) -> Mapping[Path, BlacklistFile]:
        """The lists that are switched on; the new ones are read."""
        known = self.current.blacklists
        return {path: known.get(path) or BlacklistFile.read(path) for path in _blacklists_of(server)}

    def _users(self, server: ServerSettings) -> Directory | None:
        return None if server.users is None else self._logins.directory(server.users)

    def _make(
        self,
        server: ServerSettings,
        ssl: ListenerSslSettings,
        handlers: Mapping[FilterKey, Handler],
        blacklists: Mapping[Path, BlacklistFile],
    ) -> RuleSet:
        book = self._make_book(server, ssl, handlers)
        made = RuleSet(server=server, ssl=ssl, handlers=handlers, blacklists=blacklists, book=book)
        made.apply_blacklists()
        return made

    def _make_book(
        self, server: ServerSettings, ssl: ListenerSslSettings, handlers: Mapping[FilterKey, Handler]
    ) -> Rulebook:
        policy = relay_policy(server, self._resolved)
        quotas = self._make_quotas(server) if server.quotas else None
        common, *others = (self._make_rules(each, ssl, policy, handlers, quotas) for each in _blocks(server))
        book = Rulebook(common, [(each.ip, own) for each, own in zip(server.remotenets, others, strict=True)])
        book.resolve(policy, self._resolved)
        return book

    def _make_quotas(self, server: ServerSettings) -> Quotas:
        self._rates = self._rates or UsedRates.alone()
        return Quotas(server, self._listener, self._rates, self._places, self._clock.monotonic)

    def _make_rules(
        self,
        server: ServerSettings,
        ssl: ListenerSslSettings,
        policy: RelayPolicy,
        handlers: Mapping[FilterKey, Handler],
        quotas: Quotas | None,
    ) -> Rules:
        users, handler = self._users(server), handlers.get(filter_key(server))
        make = partial(Rules, server, policy, self.gate, now=self._clock.now, ssl=ssl, lmtp=self._lmtp)
        if users is None:
            # No ATRN: only users collect mail (RFC 2645), and a listener for ODMR without users is refused
            # (`config.checks.listeners`).
            rules = make(handler=handler, quotas=quotas)
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
        return make(access=access, odmr=self._odmr, handler=handler, quotas=quotas)

    def _log_failure(self, what: str, chore: asyncio.Task[None]) -> None:
        if not chore.cancelled() and (error := chore.exception()) is not None:
            text = "listener %s: %s any more, because of a fault; restart the server"
            log.critical(text, self._listener, what, exc_info=error)

    async def _keep_files(self) -> None:
        while True:
            if (users := self._users(self.current.server)) is not None:
                await asyncio.to_thread(users.look)
            for blacklist in list(self.current.blacklists.values()):
                await asyncio.to_thread(blacklist.look)
            self.current.apply_blacklists()
            await self._clock.sleep(_FILES_MS)

    async def _keep_looking_up(self) -> None:
        while True:
            known = await self._look_up()
            await self._clock.sleep(_LOOKUP_MS if known else _LOOKUP_SOON_MS)

    async def _look_up(self) -> bool:
        """Go by the current addresses of the host names in relay_clients and remotenets. Whether all names
        have been looked up at some time."""
        server = self.current.server
        hosts = chain(server.relay_clients, *(each.ip for each in server.remotenets))
        names = host_names(list(hosts))
        if self._resolver is None or not names:
            return True
        await asyncio.gather(*(self._look_up_one(self._resolver, name) for name in names))
        # A reload may have come meanwhile.
        now = self.current
        now.book.resolve(relay_policy(now.server, self._resolved), self._resolved)
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
