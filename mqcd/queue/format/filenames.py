"""Names of the spool's files. Pure.

A content has one name, or a name for each unfinished recipient: hard links, when the record says so (its
`linked`). A *file number* stands for a name: the SPID, and behind it the recipient's QID, or 0 for the one
name that all recipients share. It is a plain number because a start holds many of them.
"""

from __future__ import annotations

import re

from mqcd.core.model import Recipient
from mqcd.core.queueing.spid import format_spid, parse_spid, silo_of

_QID_BITS = 32
_NAME = re.compile(r"([0-9A-F]{16})(?:-([1-9]\d{0,8}))?\.(?:msg|tmp)")
"""Other names are strays."""


def number(spid: int, qid: int = 0) -> int:
    """The file number of a message's shared file, or of one recipient's link."""
    return spid << _QID_BITS | qid


def number_of(recipient: Recipient) -> int:
    """The file number of a recipient's content."""
    return number(recipient.spid, recipient.qid if recipient.linked else 0)


def spid_of(file: int) -> int:
    """The SPID in a file number."""
    return file >> _QID_BITS


def qid_of(file: int) -> int:
    """The QID in a file number; 0 for a file that all recipients share."""
    return file % (1 << _QID_BITS)


def path_of(file: int, silos: int) -> str:
    """Path below the root of a spool of so many silos."""
    spid, qid = spid_of(file), qid_of(file)
    link = f"-{qid}" if qid else ""
    return f"s{silo_of(spid, silos):02d}/{format_spid(spid)}{link}.msg"


def parse(name: str) -> int | None:
    """The file number of a name, also of one that is still being written; None for a stray."""
    match = _NAME.fullmatch(name)
    return number(parse_spid(match[1]), int(match[2] or 0)) if match is not None else None
