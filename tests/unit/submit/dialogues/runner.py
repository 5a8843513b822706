"""Runs dialogues that stand in files: what a client sends, and what the server must reply.

The first line of a file names the RFC and section, then come lines of these kinds:

    + name=value     a setting of the server (`ServerSettings`)
    C: text          the client sends a line; C- sends octets without a line end
    S: pattern       a reply follows that matches (a shell pattern; lines of one reply are joined by spaces)
    N: pattern       the last reply does not match
    T:               both turn to TLS
    X:               the server closes
    Q: number        so many recipients are queued
    M: text          a message with this content is queued

Escapes are Python's; `{b64 text}`, `{cram user password}`, `{scram-first user password}`, `{scram-final}` and
`{scram-end}` stand for what a client would send. A client waits before it sends only where SMTP has it wait:
for 334, 354 and 220. So a file is also run octet by octet, and with all else in one write.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from tests.fakes.sasl import ScramClient

_WAITED_FOR = re.compile(r"(334|354|220)")
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|[rnt\\])")
_MACRO = re.compile(r"\{(b64|cram|scram-\w+) ?([^}]*)\}")


@dataclass(frozen=True)
class Case:
    """One file."""

    title: str
    settings: dict[str, Any]
    steps: list[tuple[str, str]]


class Peer(Protocol):
    """The server as the client sees it."""

    async def send(self, octets: bytes) -> None:
        """Send it, and wait until the server has done what it can."""

    async def reply(self) -> str:
        """The next reply, its lines joined by spaces; "" when there is none."""

    async def secure(self) -> None:
        """Turn to TLS."""

    async def closed(self) -> bool:
        """Whether the server has closed."""


def read(path: Path) -> Case:
    """Raises ValueError for a line that is of no kind."""
    title, *lines = path.read_text().splitlines()
    if not re.match(r"RFC \d{4}, [0-9A-C.]+: ", title):
        raise ValueError(f"{path.name} does not begin with RFC and section")
    settings: dict[str, Any] = {"maxbadreqs": 0}
    steps: list[tuple[str, str]] = []
    for line in lines:
        kind, text = line[:2], line[3:]
        if kind == "+ ":
            name, _, value = line[2:].partition("=")
            settings[name] = int(value) if value.isdigit() else {"Y": True, "N": False}.get(value, value)
        elif kind in ("C:", "C-", "S:", "N:", "T:", "X:", "Q:", "M:"):
            steps.append((kind, text))
        else:
            raise ValueError(f"{path.name}: {line!r}")
    return Case(title, settings, steps)


def octets(text: str) -> bytes:
    """What stands in a file, its escapes undone; characters beyond ASCII are UTF-8."""
    named = {b"r": b"\r", b"n": b"\n", b"t": b"\t", b"\\": b"\\"}
    return _ESCAPE.sub(
        lambda found: named.get(found[1]) or bytes.fromhex(found[1][1:].decode()), text.encode()
    )


class Client:
    """Makes what is sent, and goes through the steps."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._last = ""
        self._scram = ScramClient("", "")

    async def run(self, case: Case, mode: str) -> None:
        """`mode`: lines, octets or joined."""
        for sent, checks in _segments(case.steps, joined=mode == "joined"):
            data = b"".join(self._made(text) + (b"\r\n" if kind == "C:" else b"") for kind, text in sent)
            size = 1 if mode == "octets" else len(data)
            for at in range(0, len(data), size or 1):
                await self._peer.send(data[at : at + size])
            for kind, text in checks:
                await self._check(kind, text)
        assert await self._peer.reply() == ""

    async def _check(self, kind: str, text: str) -> None:
        if kind == "S:":
            self._last = await self._peer.reply()
            assert fnmatchcase(self._last, text), f"{self._last!r} is not {text!r}"
        elif kind == "N:":
            assert not fnmatchcase(self._last, text), self._last
        elif kind == "T:":
            await self._peer.secure()
        elif kind == "X:":
            assert await self._peer.closed()

    def _made(self, text: str) -> bytes:
        return octets(_MACRO.sub(lambda found: b64encode(self._token(*found.groups())).decode(), text))

    def _token(self, name: str, text: str) -> bytes:
        challenge = b64decode(self._last[4:]) if self._last.startswith("334 ") else b""
        if name == "b64":
            return octets(text)
        user, _, password = text.partition(" ")
        if name == "cram":
            return f"{user} {hmac.new(password.encode(), challenge, 'md5').hexdigest()}".encode()
        if name == "scram-first":
            self._scram = ScramClient(user, password)
            return self._scram.first()
        if name == "scram-end":
            assert self._scram.trusts(challenge)
            return b""
        return self._scram.final(challenge)


Step = tuple[str, str]


def _segments(steps: list[Step], *, joined: bool) -> list[tuple[list[Step], list[Step]]]:
    """What is sent at once, and what follows it."""
    parts: list[tuple[list[Step], list[Step]]] = [([], [])]
    for step in steps:
        sent, checks = parts[-1]
        waits = not joined or any(kind == "S:" and _WAITED_FOR.match(text) for kind, text in checks)
        if step[0][0] != "C":
            checks.append(step)
        elif checks and waits:
            parts.append(([step], []))
        else:
            sent.append(step)
    return parts
