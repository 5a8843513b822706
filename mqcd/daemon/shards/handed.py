"""A submission on its way to the shard that owns its key: as octets, and back. Pure.

    head     u32 octets, JSON: envelope, recipients, their DSN parameters, key, whether the content is whole
    content  parts, each u32 octets and the octets; a part of none ends it
    digest   8 octets
    reply    u32 octets, JSON: {"spid", "size"}, or {"code", "status", "text"}, or {"unavailable"}

Decoders raise only DecodeError.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, NamedTuple

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Body, Envelope, Key, Origin, Submission
from mqcd.core.queueing.idempotency import NAME_OCTETS
from mqcd.core.smtp.reply import Refused, Reply

MOST = 64 << 20
"""Octets of a head or a part."""
END = bytes(4)


def framed(octets: bytes) -> bytes:
    """With their number before them."""
    return len(octets).to_bytes(4, "little") + octets


def encode_head(submission: Submission, key: Key) -> bytes:
    """The head of a submission."""
    fields = {
        "envelope": asdict(submission.envelope),
        "recipients": list(submission.recipients),
        "dsn": list(submission.recipient_dsn),
        "key": key.name.hex(),
        "whole": isinstance(submission.content, bytes),
    }
    return framed(json.dumps(fields, separators=(",", ":")).encode())


class Head(NamedTuple):
    """What a head says."""

    submission: Submission
    """Its content is still to come."""
    key: Key
    """The submission's; its digest comes after the content."""
    whole: bool
    """Whether the content is one part, small enough for memory."""


def decode_head(octets: bytes) -> Head:
    """Raises DecodeError."""
    try:
        fields: dict[str, Any] = json.loads(octets)
        given = fields["envelope"]
        envelope = Envelope(**{**given, "origin": Origin(given["origin"]), "body": Body(given["body"])})
        key = Key(bytes.fromhex(fields["key"]))
        recipients, dsn = fields["recipients"], fields["dsn"]
        submission = Submission(
            envelope=envelope, recipients=recipients, content=b"", recipient_dsn=dsn, key=key
        )
        whole = bool(fields["whole"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DecodeError(f"not the head of a submission: {error}") from error
    if len(key.name) != NAME_OCTETS:
        raise DecodeError("not the name of a key")
    return Head(submission, key, whole)


def encode_taken(spid: int, size: int) -> bytes:
    """The reply where it is in the queue."""
    return framed(json.dumps({"spid": spid, "size": size}).encode())


def encode_refused(error: Exception) -> bytes:
    """The reply where it is not."""
    if isinstance(error, Refused):
        reply = error.reply
        return framed(json.dumps({"code": reply.code, "status": reply.status, "text": reply.text}).encode())
    return framed(json.dumps({"unavailable": str(error)}).encode())


def decode_reply(octets: bytes) -> tuple[int, int]:
    """SPID and size. Raises what the owner's queue has raised, and DecodeError."""
    try:
        fields = json.loads(octets)
        if "spid" in fields:
            return int(fields["spid"]), int(fields["size"])
        if "code" in fields:
            reply = Reply(code=fields["code"], status=fields["status"], text=fields["text"])
            raise Refused(reply)
        raise StoreUnavailable(fields["unavailable"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DecodeError(f"not the reply to a submission: {error}") from error
