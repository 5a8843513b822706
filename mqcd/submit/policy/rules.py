"""Rules shared by all sessions of one door, or by those of a network: settings, policy, lists, and whether
new mail is accepted. Pure.

Settings read: maxmsgsize, the switches of extensions, announcehost, smtpgreet, sender_deny, sender_permit,
ssl, and those of `checks.names` and `checks.greylist`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from mqcd.config.settings import HostPattern, ListenerSslSettings, Network, ServerSettings
from mqcd.core.address import domain_of, parse_path, split_address
from mqcd.core.queueing.holding import Holding
from mqcd.core.smtp.reply import Reply
from mqcd.submit.auth.login import REQUIRED, Access
from mqcd.submit.checks import names
from mqcd.submit.checks.greylist import GreylistRules
from mqcd.submit.checks.listed import NOBODY, SenderList
from mqcd.submit.checks.names import Verdict, name_rules
from mqcd.submit.esmtp import replies
from mqcd.submit.esmtp.caller import Channel
from mqcd.submit.esmtp.parameters import DSN_PARAMETERS, KEY
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.esmtp.urgency import Urgency
from mqcd.submit.filters.handlers import Handler
from mqcd.submit.networks import ip_address, networks_of
from mqcd.submit.policy.load import Load
from mqcd.submit.policy.quotas import Quotas
from mqcd.submit.policy.relay import RelayPolicy
from mqcd.submit.policy.tenancy import Tenancy

_DENIED = Reply(code=550, status="5.7.1", text="Mail from this sender is not taken here")
CLIENT_LISTED = Reply(code=554, status="5.7.1", text="Mail from your address is not taken here")

NO_SSL = ListenerSslSettings()
Suppressed = Callable[[str], Reply | None]
"""The reply that refuses a recipient on a list of addresses that take no mail; None to take it."""


class Gate:
    """Whether new mail is accepted; shared by all sessions of a door."""

    __slots__ = ("closed", "holding", "load", "suppressed")

    def __init__(self) -> None:
        self.closed: Reply | None = None
        """The reply to MAIL; None = open."""
        self.load: Load | None = None
        """How busy the server is; None = it does not matter."""
        self.suppressed: Suppressed | None = None
        """Addresses that take no mail from any sender; None = there are none."""
        self.holding = Holding()
        """Domains whose mail is held."""


class Rules:
    """Rules of all sessions of one door, computed once. What may be exchanged later says so."""

    def __init__(
        self,
        settings: ServerSettings,
        policy: RelayPolicy,
        gate: Gate,
        access: Access | None = None,
        now: Callable[[], int] = lambda: 0,
        ssl: ListenerSslSettings = NO_SSL,
        lmtp: bool = False,
        odmr: bool = False,
        handler: Handler | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """`access`: logins; None = nobody can log in. `now`: the wall time, ms. `handler`: the filter that
        the settings name. `quotas`: None = there are none."""
        self.lmtp = lmtp
        """Whether clients speak LMTP (RFC 2033)."""
        # Chunks would need a reply for each recipient even where BDAT itself is refused.
        self.chunking = settings.ext_chunking and not lmtp
        self.etrn = settings.ext_etrn and not lmtp
        self.atrn = odmr
        self._ssl = ssl
        self.tls_first = bool(ssl.certfile) and not ssl.latent
        """Whether connections begin with TLS."""
        self.settings = settings
        self.handler = handler
        self.unfiltered = bool(settings.filter) and handler is None
        """The filter that the settings name has not been made: no session may begin."""
        self.policy = policy
        """May be exchanged at any time."""
        self.gate = gate
        self.access = access
        self.senders = None if access is None else access.senders
        """Which senders users may use; None = any. May be exchanged."""
        self.bare_domain = ""
        """Completes a local part without a domain; "" = only postmaster may be one. May be exchanged."""
        self.quotas = quotas
        self.tenancy = Tenancy(settings)
        self.blacklist = NOBODY
        """May be exchanged at any time."""
        self._denied = SenderList(settings.sender_deny)
        self._permitted = SenderList(settings.sender_permit)
        self._helo = name_rules(settings, "helo")
        self._sender = name_rules(settings, "sender")
        self._recipient = name_rules(settings, "recip")
        self.greylist = GreylistRules(settings)
        self.host = settings.announcehost or "localhost"
        greeting = settings.smtpgreet or ("LMTP mqcd" if lmtp else "ESMTP mqcd")
        self.greeting = f"220 {self.host} {greeting}\r\n".encode()
        self.helo = f"250 {self.host}\r\n".encode()
        self.urgency = Urgency(settings, now)
        self._ehlo: dict[tuple[bool, bool], bytes] = {}
        logins = frozenset() if access is None else {"AUTH"}
        taken = (parameters for _, parameters in self._extensions())
        self.parameters = frozenset(self.urgency.parameters.union(logins, *taken))

    def ehlo(self, channel: Channel) -> bytes:
        """The reply to EHLO of a client that is connected so."""
        if channel.identities or self.urgency.varies:
            # As many as there are clients with a certificate; or it says a time.
            return self._ehlo_reply(channel)
        # Not by the bindings themselves: each connection has its own.
        kind = bool(channel.tls), bool(channel.bindings)
        octets = self._ehlo.get(kind)
        if octets is None:
            octets = self._ehlo[kind] = self._ehlo_reply(channel)
        return octets

    def starttls(self, channel: Channel) -> bool:
        """Whether such a client may turn to TLS."""
        return bool(self._ssl.certfile) and bool(self._ssl.latent) and not channel.tls

    def locked(self, channel: Channel) -> bool:
        """Whether such a client has to turn to TLS before anything else (RFC 3207, 4)."""
        return self._ssl.mandatory and self.starttls(channel)

    def parse(self, text: str) -> tuple[str, str]:
        """The path at the head of `text`, and what follows it. Raises DecodeError."""
        return parse_path(text, bare=bool(self.bare_domain))

    def complete(self, path: str) -> str:
        """`path` with the domain that it lacks."""
        if not self.bare_domain or not path or "@" in path or path.lower() == "postmaster":
            return self.policy.complete(path)
        return f"{path}@{self.bare_domain}"

    def mail_denied(self, user: str) -> tuple[Reason, Reply] | None:
        """Why no client, or none that has not logged in, may begin a message now."""
        if self.gate.closed is not None:
            return Reason.CLOSED, self.gate.closed
        if self.access is not None and self.access.mandatory and not user:
            return Reason.AUTH, REQUIRED
        return None if self.gate.load is None else self.gate.load.refusal()

    def sender_denied(self, user: str, sender: str) -> tuple[Reason, Reply] | None:
        """Why this reverse-path is not taken from the user, or from a client without login.

        Of `sender_deny` and `sender_permit` the one counts that names the sender more closely.
        """
        if user and self.senders is not None and not self.senders.allows(user, sender):
            return Reason.SENDER, replies.NOT_YOURS
        if self.blacklist.senders.has(sender):
            return Reason.BLACKLIST, _DENIED
        if self._denied or self._permitted:
            denied, permitted = self._denied.rank(sender), self._permitted.rank(sender)
            if (denied and denied >= permitted) or (sender and self._permitted and not permitted):
                return Reason.SENDER, _DENIED
        return None

    def check_helo(self, name: str, client: str) -> Verdict:
        """Whether a name in HELO is good: what refuses it, or what DNS has to be asked first."""
        if not self._helo.checked or self.policy.trusts(client):
            return ()
        return names.check(self._helo, name, names.HELO, client)

    def check_sender(self, sender: str, client: str) -> Verdict:
        """The same for a reverse-path; `client` is "" of one that needs no name in DNS."""
        if not self._sender.checked:
            return ()
        return names.check(self._sender, split_address(sender)[1], names.SENDER, client)

    def check_recipient(self, recipient: str, client: str) -> Verdict:
        """The same for a recipient; the domains of relay_domains need no DNS at all."""
        if not self._recipient.checked or domain_of(recipient) in self.policy.domains:
            return ()
        return names.check(self._recipient, split_address(recipient)[1], names.RECIPIENT, client)

    def recipient_denied(
        self, path: str, recipient: str, *, utf8: bool, may_relay: bool
    ) -> tuple[Reason, Reply] | None:
        """Why this recipient is not taken; `path` is what the client wrote, `utf8` what MAIL declared."""
        if not path:
            return Reason.RECIPIENT, replies.NULL_RECIPIENT
        if not path.isascii() and not utf8:
            return Reason.RECIPIENT, replies.NEEDS_UTF8
        denied = self.policy.refusal(path, may_relay)
        if denied is not None:
            return Reason.RELAY, denied
        suppressed = self.gate.suppressed
        listed = None if suppressed is None else suppressed(recipient)
        return None if listed is None else (Reason.SUPPRESSED, listed)

    def _ehlo_reply(self, channel: Channel) -> bytes:
        lines = [f"250-{line}" for line in (self.host, *self._keywords(channel))]
        lines[-1] = lines[-1].replace("250-", "250 ", 1)
        return ("\r\n".join(lines) + "\r\n").encode()

    def _extensions(self) -> list[tuple[str, Set[str]]]:
        """What is offered over any channel: the line in the reply to EHLO, and the parameters of MAIL and
        RCPT that are taken with it."""
        settings = self.settings
        extensions: tuple[tuple[bool, str, Set[str]], ...] = (
            (settings.ext_pipelining, "PIPELINING", frozenset()),
            (settings.ext_size, f"SIZE {settings.maxmsgsize}", {"SIZE"}),
            (settings.ext_8bitmime, "8BITMIME", {"BODY"}),
            # RFC 6531, 3.1: a server that offers SMTPUTF8 has to offer 8BITMIME.
            (settings.ext_8bitmime and settings.ext_smtputf8, "SMTPUTF8", {"SMTPUTF8"}),
            (settings.ext_dsn, "DSN", DSN_PARAMETERS),
            (self.chunking, "CHUNKING", frozenset()),
            (self.etrn, "ETRN", frozenset()),
            (self.atrn, "ATRN", frozenset()),
            (settings.submission, KEY, {KEY}),
        )
        return [(keyword, parameters) for offered, keyword, parameters in extensions if offered]

    def _keywords(self, channel: Channel) -> list[str]:
        keywords = [keyword for keyword, _ in self._extensions()]
        if self.starttls(channel):
            keywords.append("STARTTLS")
        access = None if self.locked(channel) else self.access
        logins = [] if access is None else access.keywords(channel)
        # STARTTLS in the last line is overlooked by gsasl.
        return [*keywords, "ENHANCEDSTATUSCODES", *self.urgency.keywords(), *logins]


class Rulebook:
    """The rules of a door: those of all its clients, and those of the networks in `remotenets`."""

    __slots__ = ("_own", "_sorted", "common")

    def __init__(self, common: Rules, own: Sequence[tuple[Sequence[HostPattern], Rules]] = ()) -> None:
        """`own`: whose rules are others; host names among them count once `resolve` knows them."""
        self.common = common
        self._own = own
        self._sorted: Sequence[tuple[Network, Rules]] = ()
        self.resolve(common.policy, {})

    def __iter__(self) -> Iterator[Rules]:
        yield self.common
        yield from (rules for _, rules in self._own)

    def resolve(self, policy: RelayPolicy, resolved: Mapping[str, Sequence[str]]) -> None:
        """Go by these addresses of host names; see `relay_policy`."""
        for rules in self:
            rules.policy = policy
        networks = [(each, rules) for hosts, rules in self._own for each in networks_of(hosts, resolved)]
        self._sorted = sorted(networks, key=lambda pair: -pair[0].prefixlen)

    def of(self, client: str) -> Rules:
        """The rules for the client with this IP address: of the networks that it is in, the smallest counts,
        of equal ones the first."""
        if not self._sorted:
            return self.common
        address = ip_address(client)
        if address is None:
            return self.common
        return next((rules for network, rules in self._sorted if address in network), self.common)
