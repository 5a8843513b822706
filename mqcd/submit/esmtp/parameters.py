"""The ESMTP parameters of MAIL and RCPT: parsed and checked. Pure.

SIZE (RFC 1870), BODY (RFC 6152), SMTPUTF8 (RFC 6531), AUTH (RFC 4954, 5: taken, and not passed on), HOLDFOR
and HOLDUNTIL (RFC 4865), MT-PRIORITY (RFC 6710), this server's own X-MQCD-KEY, and DSN's RET, ENVID, NOTIFY,
ORCPT (RFC 3461), which are kept in one normal form for the report that may come of them. A parameter that is
not known, or belongs to an extension that is switched off, is refused with 555; one given twice, or with a
value that its RFC does not know, with 501 (RFC 5321, 4.1.1.11).

Settings read: the switches of extensions, by way of `offered`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import datetime

from mqcd.core.model import Body
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.submit.esmtp.refusal import DoorRefused, Reason

_KEYWORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-]*")
_XTEXT = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})*")
# What xtext stands for in DSN's parameters is printable too (RFC 3461, 4.2 and 4.4).
_PRINTABLE = re.compile(r"(?:[!-*,-<>-~]|\+(?:[2-6][0-9A-F]|7[0-9A-E]))*")
# RFC 6533, 3: where SMTPUTF8 is offered, such an address may come as it is.
_UTF8_ORCPT = re.compile(r"(?<![^ ])ORCPT=utf-8;[^ ]+", re.IGNORECASE | re.ASCII)
_INTERVAL = re.compile(r"[1-9][0-9]{0,8}")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)", re.A | re.I)
_PRIORITY = re.compile(r"0|-?[1-9]")
_ENCODED = re.compile(r"\+([0-9A-F]{2})")
_ADDRESS_TYPE = re.compile(r"[A-Za-z0-9\-]+")
_MAX_ENVID = 100
_MAX_ORCPT = 500
_NOTIFY = ("SUCCESS", "FAILURE", "DELAY")

KEY = "X-MQCD-KEY"
MAX_KEY = 255
"""Characters of an idempotency key."""
DSN_PARAMETERS = frozenset({"RET", "ENVID", "NOTIFY", "ORCPT"})


@value
class MailParameters:
    """The parameters of MAIL."""

    size: int = 0
    """Octets that the client declared; 0 when it did not."""
    body: Body = Body.SEVEN
    smtputf8: bool = False
    dsn: str = ""
    """RET and ENVID in normal form."""
    holdfor: int = 0
    """The time for which it is to be held, ms; 0 = none."""
    holduntil: int = 0
    """The time until which it is to be held, ms since the Unix epoch; 0 = none."""
    priority: int = 0
    """MT-PRIORITY: -9 to 9."""
    key: str = ""
    """Idempotency key; "" = none."""


NO_PARAMETERS = MailParameters()


def parse_mail(text: str, offered: Collection[str]) -> MailParameters:
    """What follows the path of MAIL. `offered` lists the keywords taken. Raises DoorRefused."""
    if not text:
        return NO_PARAMETERS
    given = _split(text, offered, _MAIL)
    if "HOLDFOR" in given and "HOLDUNTIL" in given:
        raise _malformed("HOLDFOR and HOLDUNTIL exclude each other")
    return MailParameters(
        size=int(given.get("SIZE", "0")),
        body=Body(given.get("BODY", Body.SEVEN)),
        smtputf8="SMTPUTF8" in given,
        dsn=_join(given, ("RET", "ENVID")),
        holdfor=int(given.get("HOLDFOR", "0")) * 1000,
        holduntil=int(given.get("HOLDUNTIL", "0")),
        priority=int(given.get("MT-PRIORITY", "0")),
        key=given.get(KEY, ""),
    )


def parse_rcpt(text: str, offered: Collection[str]) -> str:
    """What follows the path of RCPT: NOTIFY and ORCPT in normal form, or "". Raises DoorRefused."""
    if not text:
        return ""
    if not text.isascii() and "SMTPUTF8" in offered:
        text = _UTF8_ORCPT.sub(_in_ascii, text)
    return _join(_split(text, offered, _RCPT), ("NOTIFY", "ORCPT"))


def _in_ascii(found: re.Match[str]) -> str:
    """An address of type utf-8 in the form that any server takes (RFC 6533, 3)."""
    return "".join(each if each.isascii() else f"\\x{{{ord(each):X}}}" for each in found[0])


def _split(text: str, offered: Collection[str], known: dict[str, Callable[[str], str]]) -> dict[str, str]:
    given: dict[str, str] = {}
    if not text.isascii():
        # Values beyond ASCII belong to no keyword that is known; folded, some would look like ASCII.
        raise _malformed("Parameter with characters beyond ASCII")
    for word in text.split():
        keyword, _, value = word.partition("=")
        keyword = keyword.upper()
        if not _KEYWORD.fullmatch(keyword):
            raise _malformed("Parameter is not KEYWORD or KEYWORD=value")
        if keyword not in known or keyword not in offered:
            reply = Reply(code=555, status="5.5.4", text=f"Parameter {keyword[:20]} is not supported here")
            raise DoorRefused(Reason.SYNTAX, reply)
        if keyword in given:
            raise _malformed(f"Parameter {keyword} given twice")
        given[keyword] = known[keyword](value)
    return given


def _join(given: dict[str, str], keywords: tuple[str, ...]) -> str:
    return " ".join(f"{keyword}={given[keyword]}" for keyword in keywords if keyword in given)


def _malformed(text: str) -> DoorRefused:
    return DoorRefused(Reason.SYNTAX, Reply(code=501, status="5.5.4", text=text))


def _size(value: str) -> str:
    if not (value.isascii() and value.isdigit()) or len(value) > 20:
        raise _malformed("SIZE takes a number of octets")
    return value


def _body(value: str) -> str:
    if value.upper() not in tuple(Body):
        raise _malformed("BODY takes 7BIT or 8BITMIME")
    return value.upper()


def _smtputf8(value: str) -> str:
    if value:
        raise _malformed("SMTPUTF8 takes no value")
    return value


def _auth(value: str) -> str:
    if (value != "<>" and not (value and _XTEXT.fullmatch(value))) or len(value) > _MAX_ORCPT:
        raise _malformed("AUTH takes <> or a mailbox in xtext")
    return value


def _holdfor(value: str) -> str:
    if not _INTERVAL.fullmatch(value):
        raise _malformed("HOLDFOR takes seconds, 1 to 999999999")
    return value


def _holduntil(value: str) -> str:
    """The time in ms. One before 1970 has passed as well as any other."""
    try:
        at = datetime.fromisoformat(value.upper()) if _DATE_TIME.fullmatch(value) else None
        if at is not None:
            return str(max(int(at.timestamp() * 1000), 1))
    except (ValueError, OverflowError):
        pass
    raise _malformed("HOLDUNTIL takes a date and time: 2030-12-31T23:59:59Z (RFC 3339)")


def _priority(value: str) -> str:
    if not _PRIORITY.fullmatch(value):
        raise _malformed("MT-PRIORITY takes -9 to 9")
    return value


def _key(value: str) -> str:
    """The key that the xtext stands for: a key may have what a parameter may not."""
    key = _ENCODED.sub(lambda found: chr(int(found[1], 16)), value)
    if not key or len(key) > MAX_KEY or not _PRINTABLE.fullmatch(value) or " " in key:
        raise _malformed(f"{KEY} takes xtext of at most {MAX_KEY} printable ASCII characters")
    return key


def _ret(value: str) -> str:
    if value.upper() not in ("FULL", "HDRS"):
        raise _malformed("RET takes FULL or HDRS")
    return value.upper()


def _envid(value: str) -> str:
    if not value or len(value) > _MAX_ENVID or not _PRINTABLE.fullmatch(value):
        raise _malformed(f"ENVID takes xtext of at most {_MAX_ENVID} octets")
    return value


def _notify(value: str) -> str:
    events = value.upper().split(",")
    once = len(set(events)) == len(events)
    if events != ["NEVER"] and not (once and all(event in _NOTIFY for event in events)):
        raise _malformed("NOTIFY takes NEVER, or a list of SUCCESS, FAILURE, DELAY")
    return ",".join(events)


def _orcpt(value: str) -> str:
    kind, semicolon, address = value.partition(";")
    good = semicolon and address and _ADDRESS_TYPE.fullmatch(kind) and _PRINTABLE.fullmatch(address)
    if not good or len(value) > _MAX_ORCPT:
        raise _malformed(f"ORCPT takes type;xtext of at most {_MAX_ORCPT} octets")
    return value


_MAIL: dict[str, Callable[[str], str]] = {
    "SIZE": _size,
    "BODY": _body,
    "SMTPUTF8": _smtputf8,
    "AUTH": _auth,
    "HOLDFOR": _holdfor,
    "HOLDUNTIL": _holduntil,
    "MT-PRIORITY": _priority,
    KEY: _key,
    "RET": _ret,
    "ENVID": _envid,
}
_RCPT: dict[str, Callable[[str], str]] = {"NOTIFY": _notify, "ORCPT": _orcpt}
