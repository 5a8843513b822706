"""Names that clients give, checked by their form, and what DNS has to be asked about them. Pure.

`check` returns a reply that refuses the name, or the questions to DNS on which it depends; none = the name
is good. The form is that of RFC 5321, 4.1.2 and 4.1.3, but for underscores, which machines have in
their names. A name of digits alone behind its last dot is an address without brackets, and no name.

Settings read: validate_helo, validate_sender, validate_recip.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from mqcd.config.settings import Direction, PeerSettings
from mqcd.core.address import literal_ip, normal_domain
from mqcd.core.errors import DecodeError
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.submit.esmtp.refusal import Reason

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$)(?:{_LABEL}\.)*(?![0-9]+$){_LABEL}", re.ASCII)

HELO_FORM = Reply(code=501, status="5.5.4", text="This is no host name or address literal")
HELO_DOTTED = Reply(code=504, status="5.5.2", text="Say your full host name")
HELO_MISSING = Reply(code=550, status="5.7.1", text="Your host name has no address in DNS")
HELO_FAILED = Reply(code=450, status="4.7.1", text="Your host name cannot be looked up, try again later")
CLIENT_MISSING = Reply(
    code=550, status="5.7.25", text="Your address has no name in DNS that leads back to it"
)
CLIENT_FAILED = Reply(code=450, status="4.7.1", text="Your address cannot be looked up, try again later")
SENDER_FORM = Reply(code=550, status="5.1.7", text="The sender's domain is not a full domain name")
SENDER_MISSING = Reply(code=550, status="5.1.8", text="The sender's domain has no mail exchanger or address")
SENDER_FAILED = Reply(
    code=450, status="4.4.3", text="The sender's domain cannot be looked up, try again later"
)
RECIPIENT_FORM = Reply(code=550, status="5.1.3", text="The recipient's domain is not a full domain name")
RECIPIENT_MISSING = Reply(
    code=550, status="5.1.2", text="The recipient's domain has no mail exchanger or address"
)
RECIPIENT_FAILED = Reply(
    code=450, status="4.4.3", text="The recipient's domain cannot be looked up, try again later"
)


class Want(Enum):
    """What DNS must have of a name."""

    HOST = auto()
    """An address."""
    MAIL = auto()
    """A mail exchanger that is not the null MX (RFC 7505), or an address."""
    CLIENT = auto()
    """Of an IP address: a name of which it is an address."""


@value
class Lookup:
    """A question to DNS on which the reply to a command depends."""

    want: Want
    name: str
    reason: Reason
    missing: Reply
    """The reply if DNS does not have it."""
    failed: Reply | None
    """The reply if DNS gives no answer in time; None = the command is taken."""


@value
class NameRules:
    """How one kind of name is checked."""

    checked: bool = False
    syntaxonly: bool = False
    dotted: bool = False
    fqdn: bool = False
    allowtimeout: bool = True
    direction: Direction = Direction.FORWARD


@value(kw_only=False)
class Replies:
    """What is asked of names in HELO, of the domains of senders, or of recipients, and the refusals."""

    reason: Reason
    want: Want
    form: Reply
    """It is no name."""
    short: Reply
    """It is not as full as the rules ask."""
    missing: Reply
    failed: Reply


HELO = Replies(Reason.HELO, Want.HOST, HELO_FORM, HELO_DOTTED, HELO_MISSING, HELO_FAILED)
SENDER = Replies(Reason.SENDER, Want.MAIL, SENDER_FORM, SENDER_FORM, SENDER_MISSING, SENDER_FAILED)
RECIPIENT = Replies(
    Reason.RECIPIENT, Want.MAIL, RECIPIENT_FORM, RECIPIENT_FORM, RECIPIENT_MISSING, RECIPIENT_FAILED
)

Verdict = Reply | Sequence[Lookup]


def name_rules(settings: PeerSettings, kind: str) -> NameRules:
    """Those of `validate_<kind>`: helo, sender or recip."""
    stem = f"validate_{kind}"
    parts = ("syntaxonly", "dotted", "fqdn", "allowtimeout", "direction")
    given: dict[str, Any] = {part: getattr(settings, f"{stem}_{part}") for part in parts}
    return NameRules(checked=getattr(settings, stem), **given)


def check(rules: NameRules, name: str, say: Replies, client: str) -> Verdict:
    """A name in HELO or EHLO, or the domain of an address, "" = it has none; from the client with this IP
    address."""
    if not name:
        return ()
    form, literal = _form(name), name.startswith("[")
    if form is None:
        return say.form
    if _is_short(rules, name, literal):
        return say.short
    if rules.syntaxonly:
        return ()
    return _questions(rules, "" if literal else form, say, client)


def _questions(rules: NameRules, name: str, say: Replies, client: str) -> Sequence[Lookup]:
    """What DNS is asked about a name, "" = nothing, and about the client that gives it."""
    asked = (
        (rules.direction is not Direction.REVERSE, say.want, name, say.missing, say.failed),
        (rules.direction is not Direction.FORWARD, Want.CLIENT, client, CLIENT_MISSING, CLIENT_FAILED),
    )
    return [
        Lookup(
            want=each,
            name=about,
            reason=say.reason,
            missing=missing,
            failed=None if rules.allowtimeout else failed,
        )
        for wanted, each, about, missing, failed in asked
        if wanted and about
    ]


def _form(name: str) -> str | None:
    """The name in the form in which it is looked up; None if it is no name."""
    if name.startswith("["):
        try:
            return literal_ip(name) if name.endswith("]") else None
        except DecodeError:
            return None
    known = normal_domain(name)
    return known if _NAME.fullmatch(known) else None


def _is_short(rules: NameRules, name: str, literal: bool) -> bool:
    """Whether it is not as full as the rules ask."""
    if literal:
        return rules.fqdn
    return (rules.dotted or rules.fqdn) and "." not in name.rstrip(".")
