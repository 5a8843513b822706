"""What a next hop said last, as Mailismus keeps it in `ndrdiag/<SPID>-<QID>.ndr`. Pure.

Octet 01, the IPv4 address that gave the reply, and the reply's line; or plain text for an error of its own.
A shorter text written over a longer one leaves the end of the longer one behind. Nothing marks where; what
can be known follows from the record's code (a reply of another code is not the last one) and by the other
recipients of the message: a reply to its content, which all of them got, ends where the shortest ends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from mqcd.core.errors import DecodeError
from mqcd.core.smtp.reply import Reply, clean, join_lines, parse_line
from mqcd.core.value import value

_HEAD = 5
"""Octet 01 and the address."""
_LEAST = 10
"""Octets of a reply line before it counts as the beginning of another: code and status say too little."""
_MAX = 4096


@value(kw_only=False)
class Diagnosis:
    """One file, decoded."""

    remote: str
    """Address of the host that replied; "" for an error of its own."""
    text: bytes


def decode(data: bytes) -> Diagnosis:
    """Never fails: what cannot be read says nothing."""
    remote, text = "", data
    if data[:1] == b"\x01":
        head = data[1:_HEAD]
        remote = str(ipaddress.IPv4Address(head)) if len(head) == _HEAD - 1 and any(head) else ""
        text = data[_HEAD:]
    return Diagnosis(remote, text[:_MAX].split(b"\n", 1)[0].rstrip(b"\r\0"))


def last_reply(diagnosis: Diagnosis, code: int, others: Iterable[Diagnosis]) -> Reply:
    """The last reply to a recipient whose record says `code`; its text is "" when it is not known.

    `others` are those of the message's other recipients.
    """
    text = diagnosis.text
    for other in others:
        if other.remote == diagnosis.remote and len(other.text) > _LEAST and text.startswith(other.text):
            text = other.text
    if not code:
        return Reply(code=0)
    try:
        said, _, rest = parse_line(text)
    except DecodeError:
        # An error of its own has no code in front.
        own = "" if diagnosis.remote else clean(text.decode("utf-8", "replace"), _MAX)
        return Reply(code=code, text=own)
    return join_lines(code, [rest]) if said == code else Reply(code=code)
