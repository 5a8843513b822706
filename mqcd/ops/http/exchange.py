"""A request and its answer (RFC 9112), as values and as octets. Pure but for the look at the own user id."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import field
from http import HTTPStatus

from mqcd.core.value import value

TEXT = "text/plain; charset=utf-8"
MOST_AUTHOR = 100
"""Characters of a caller's name."""


@value
class Request:
    """One request: method, target and the fields that pages use."""

    method: str
    path: str
    """Without the query."""
    query: str = ""
    """What follows the question mark, as sent."""
    accept: str = ""
    """The field Accept: the media types that the client can read."""
    host: str | None = None
    """The field Host; None where there is none."""
    content_type: str = ""
    """The field Content-Type."""
    author: str = ""
    """The field X-Mqcd-Author: on whose behalf the peer asks, see `by`."""
    continues: bool = False
    """Whether the client waits for 100 before it sends the body."""
    length: int = 0
    """Octets of the body; -1 where they are not said in the one way that is understood."""
    body: bytes = b""
    chunks: AsyncIterator[bytes] | None = field(default=None, compare=False)
    """The body of an action that reads it by itself. Raises ConnectionError, TimeoutError."""
    uid: int = -1
    """User id of the process that asks, over a unix socket; else -1."""
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Fields whose names begin with X-Mqcd-, by their names in lower case."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What stands in the path where its page has {name}."""

    @property
    def trusted(self) -> bool:
        """Whether root or the server's own user asks, and not for another user of this machine."""
        asker = self.by.removeprefix("uid:")
        return self.speaks and (not asker.isdecimal() or int(asker) in (0, os.geteuid()))

    @property
    def speaks(self) -> bool:
        """Whether the peer may name another author."""
        return self.uid in (0, os.geteuid())

    @property
    def by(self) -> str:
        """The author, for log and events: the peer's user, or a name given by root or the server's user."""
        return self.author if self.author and self.speaks else f"uid:{self.uid}"


@value
class Answer:
    """What is answered."""

    body: bytes = b""
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT
    allow: str = ""
    """With 405: the methods that there are."""
    chunks: AsyncGenerator[bytes, None] | None = field(default=None, compare=False)
    """Instead of `body`: sent as they come; closed at the end in any case."""
    length: int | None = None
    """Octets of `chunks`; None = the end of the connection is theirs."""


def plain(status: HTTPStatus, text: str) -> Answer:
    """A status and why."""
    return Answer(status=status, body=f"{status.value} {status.phrase}: {text}\n".encode())


_ABSOLUTE = re.compile(r"https?://([^/?#@]+)(?=[/?]|$)", re.IGNORECASE)
_FIELD = re.compile(rb"\r\n([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*)")


def parse_request(head: bytes) -> Request | None:
    """The request whose line and fields `head` holds; None when it is no HTTP/1 request."""
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[0].isalpha():
        return None
    fields: dict[str, list[str]] = {}
    for name, content in _FIELD.findall(b"\r\n" + rest):
        fields.setdefault(name.decode().lower(), []).append(content.decode("latin-1").strip())
    hosts = fields.get("host", [])
    # RFC 9112, 3.2: exactly one from HTTP/1.1 on.
    if len(hosts) > 1 or (not hosts and words[2] != "HTTP/1.0"):
        return None
    # RFC 9112, 3.2.2: a target in absolute form, as proxies get it; its host counts, not the field.
    absolute = _ABSOLUTE.match(words[1])
    if absolute is not None:
        hosts = [absolute[1]]
    path, _, query = words[1][absolute.end() if absolute else 0 :].partition("?")
    return Request(
        method=words[0],
        path=path or "/",
        query=query,
        accept=", ".join(fields.get("accept", [])),
        host=hosts[0] if hosts else None,
        content_type=fields.get("content-type", [""])[0],
        author=_author(fields),
        continues=fields.get("expect", [""])[0].lower() == "100-continue",
        length=_length(fields),
        fields={
            name: texts[0].encode("latin-1").decode("utf-8", "replace")
            for name, texts in fields.items()
            if name.startswith("x-mqcd-") and len(texts) == 1
        },
    )


def _author(fields: Mapping[str, list[str]]) -> str:
    """One word, or nothing: it stands in lines of the log."""
    names = fields.get("x-mqcd-author", [])
    return names[0][:MOST_AUTHOR] if len(names) == 1 and re.fullmatch(r"[!-~]+", names[0]) else ""


def _length(fields: Mapping[str, list[str]]) -> int:
    lengths = fields.get("content-length", ["0"])
    if "transfer-encoding" in fields or len(lengths) > 1 or not re.fullmatch("[0-9]{1,12}", lengths[0]):
        return -1
    return int(lengths[0])


def encode(answer: Answer, head_only: bool) -> bytes:
    """The answer on the wire without its chunks; the length is that of the body also where HEAD leaves it
    out."""
    length = answer.length if answer.chunks is not None else len(answer.body)
    fields = {
        "Content-Type": answer.content_type,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    if length is not None:
        fields["Content-Length"] = str(length)
    if answer.allow:
        fields["Allow"] = answer.allow
    head = f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
    return head.encode("latin-1") + (b"" if head_only else answer.body)
