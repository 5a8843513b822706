"""Connections that live in memory, and an SMTP server at their other end that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mqcd.core.errors import ConnectFailed, LocalShortage, SourceUnavailable
from mqcd.core.ports import TlsTerms

SOURCE = "192.0.2.250"


class FakeConnection:
    """`mqcd.core.ports.Connection`. What is written goes to the peer at once; its answers can be read."""

    def __init__(self, peer: Peer, address: str, source: str) -> None:
        self._source = source
        self._peer = peer
        self._address = address
        self._unread = bytearray()
        self._end: ConnectFailed | None = None
        self._closed = False
        self._changed = asyncio.Event()
        self.tls = ""
        self.writes: list[bytes] = []
        peer.connected(self)

    @property
    def remote_addr(self) -> str:
        return self._address

    @property
    def source_addr(self) -> str:
        """The one that was asked for, else always the same."""
        return self._source or SOURCE

    # The client's side.

    @property
    def quiet(self) -> bool:
        """Whether the peer has said nothing that was not read, nor closed."""
        return not self._unread and not self._closed

    def write(self, data: bytes) -> None:
        if not self._closed:
            self.writes.append(data)
            self._peer.receive(data)

    async def drain(self) -> None:
        if self._end is not None:
            raise self._end

    async def read(self) -> bytes:
        while not self._unread and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        if self._unread:
            data = bytes(self._unread)
            self._unread.clear()
            return data
        if self._end is not None:
            raise self._end
        return b""

    async def start_tls(self, hostname: str, terms: TlsTerms) -> None:
        """Fails if the peer's `tls_works` is off, or its certificate is looked at and bad, or by `own_files`;
        the peer keeps the terms."""
        await asyncio.sleep(0)
        peer = self._peer
        peer.tls_terms = terms
        why = "as the test wants it" if not peer.tls_works else peer.bad_certificate if terms.verify else ""
        if peer.own_files is not None or why:
            self.close()
            raise peer.own_files or ConnectFailed(f"TLS handshake failed: {why}")
        self.tls = "TLSv1.3"
        if self._peer.tls_first:
            self._peer.greet()

    def close(self) -> None:
        if not self._closed:
            self._end = ConnectFailed("connection closed on this side")
            self._closed = True
            self._peer.gone()
            self._changed.set()

    # The peer's side.

    def say(self, data: bytes) -> None:
        """The peer sends octets."""
        self._unread += data
        self._changed.set()

    def hang_up(self) -> None:
        """The peer closes, after what it has said."""
        self._closed = True
        self._changed.set()


@dataclass
class Peer:
    """A server for one connection. `replies` maps a verb, or a verb and argument, to what is said then.

    A reply of None is silence, "" hangs up. Without an entry it answers as a server that takes everything.
    """

    replies: Mapping[str, str | None] = field(default_factory=dict)
    extensions: tuple[str, ...] = ("PIPELINING", "8BITMIME", "SMTPUTF8", "SIZE 0")
    tls_works: bool = True
    bad_certificate: str = ""
    """What is wrong with its certificate, for who looks."""
    own_files: ConnectFailed | None = None
    """What the client finds when it loads TLS files of its own."""
    tls_first: bool = False
    """It says nothing before TLS stands."""
    tls_terms: TlsTerms | None = None
    lmtp: bool = False
    """It replies to a message for each recipient; to `.` and the address where the test says so."""
    log: list[str] = field(default_factory=list)
    """The commands, in order."""
    messages: list[tuple[str, tuple[str, ...], bytes]] = field(default_factory=list)
    """Sender, recipients and content as it came over the wire, of each message that was accepted."""
    open: bool = False

    def connected(self, connection: FakeConnection) -> None:
        self._connection = connection
        self._buffer = b""
        self._content: bytes | None = None
        self._silent = False
        self._sender = ""
        self._recipients: list[str] = []
        self._chunk = 0
        self._last = False
        self._chunks = b""
        self.open = True
        if not self.tls_first:
            self.greet()

    def greet(self) -> None:
        self._answer("connect", "220 peer ready")

    def receive(self, data: bytes) -> None:
        self._buffer += data
        while self._buffer and not self._silent and self.open:
            if not self._take_next():
                return

    def gone(self) -> None:
        self.open = False

    def _take_next(self) -> bool:
        if self._chunk or self._last:
            return self._take_chunk()
        return self._take_content() if self._content is not None else self._take_command()

    def _take_command(self) -> bool:
        line, found, rest = self._buffer.partition(b"\r\n")
        if not found:
            return False
        self._buffer = rest
        text = line.decode()
        self.log.append(text)
        verb = text.split(" ")[0].split(":")[0].upper()
        # By name, for the sake of who derives from it.
        getattr(self, _ACTIONS.get(verb, Peer._other).__name__)(verb, text)
        return True

    def _take_content(self) -> bool:
        whole = b"\r\n" + self._buffer
        end = whole.find(b"\r\n.\r\n")
        if end < 0:
            return False
        content, self._buffer, self._content = whole[2 : end + 2], whole[end + 5 :], None
        self._take_message(content)
        return True

    def _take_chunk(self) -> bool:
        if len(self._buffer) < self._chunk:
            return False
        self._chunks += self._buffer[: self._chunk]
        self._buffer, self._chunk = self._buffer[self._chunk :], 0
        if self._last:
            self._last = False
            self._take_message(self._chunks)
        else:
            self._answer("BDAT", "250 chunk taken")
        return True

    def _take_message(self, content: bytes) -> None:
        if self.lmtp:
            taken = [each for each in self._recipients if self._replied(f". {each}").startswith("2")]
        else:
            taken = self._recipients if self._replied(".").startswith("2") else []
        if taken:
            self.messages.append((self._sender, tuple(taken), content))
        self._recipients = []
        self._chunks = b""

    def _replied(self, key: str) -> str:
        return self._answer(key, self.replies.get(".", "250 2.0.0 taken"))

    def _bdat(self, verb: str, text: str) -> None:
        words = text.split()
        self._chunk, self._last = int(words[1]), words[-1] == "LAST"

    def _hello(self, verb: str, text: str) -> None:
        lines = ("peer", *self.extensions) if verb != "HELO" else ("peer",)
        marks = ["-"] * (len(lines) - 1) + [" "]
        usual = "\r\n".join(f"250{mark}{line}" for mark, line in zip(marks, lines, strict=True))
        self._answer(verb, usual)

    def _mail(self, verb: str, text: str) -> None:
        self._sender = text.partition("<")[2].partition(">")[0]
        self._recipients = []
        self._answer(verb, "250 2.1.0 ok")

    def _rcpt(self, verb: str, text: str) -> None:
        address = text.partition("<")[2].partition(">")[0]
        if self._answer(f"RCPT {address}", self.replies.get("RCPT", "250 2.1.5 ok")).startswith("2"):
            self._recipients.append(address)

    def _data(self, verb: str, text: str) -> None:
        usual = "354 go on" if self._recipients else "503 5.5.1 no recipients"
        if self._answer(verb, usual).startswith("3"):
            self._content = b""

    def _starttls(self, verb: str, text: str) -> None:
        self._answer(verb, "220 go on")
        self.extensions = tuple(each for each in self.extensions if each != "STARTTLS")

    def _auth(self, verb: str, text: str) -> None:
        self._answer(verb, "235 2.7.0 welcome")

    def _quit(self, verb: str, text: str) -> None:
        if self._answer(verb, "221 bye"):
            self._connection.hang_up()

    def _other(self, verb: str, text: str) -> None:
        self._answer(verb, "250 ok")

    def _answer(self, key: str, usual: str | None) -> str:
        reply = self.replies.get(key, usual)
        if reply is None:
            self._silent = True
            return ""
        if reply == "":
            self.open = False
            self._connection.hang_up()
            return ""
        self._connection.say(reply.encode() + b"\r\n")
        if reply.startswith("421"):
            self.open = False
            self._connection.hang_up()
        return reply


_ACTIONS: Mapping[str, Callable[[Peer, str, str], None]] = {
    "EHLO": Peer._hello,
    "HELO": Peer._hello,
    "LHLO": Peer._hello,
    "AUTH": Peer._auth,
    "BDAT": Peer._bdat,
    "MAIL": Peer._mail,
    "RCPT": Peer._rcpt,
    "DATA": Peer._data,
    "STARTTLS": Peer._starttls,
    "QUIT": Peer._quit,
}


class FakeDialer:
    """`mqcd.core.ports.Dialer`: each address leads to what `hosts` says.

    A callable makes the peer of each new connection, a text is why the connection is refused, None means
    that no answer ever comes. Unknown addresses refuse.
    """

    def __init__(self, hosts: Mapping[str, Callable[[], Peer] | str | None] | None = None) -> None:
        self.hosts: dict[str, Callable[[], Peer] | str | None] = dict(hosts or {})
        self.dialled: list[tuple[str, int]] = []
        self.missing: set[str] = set()
        """Own addresses that this machine does not have."""
        self.shortage = ""
        """Why this machine can open no connection; "" = it can."""
        self.own: set[str] = set()
        """Addresses of this machine."""
        self.peers: list[Peer] = []

    def is_own(self, address: str) -> bool:
        """Whether it is one of `own`."""
        return address in self.own

    async def dial(self, address: str, port: int, source: str) -> FakeConnection:
        """Connect in memory. Raises ConnectFailed as told."""
        self.dialled.append((address, port))
        await asyncio.sleep(0)
        if self.shortage:
            raise LocalShortage(self.shortage)
        if source in self.missing:
            raise SourceUnavailable(f"{source} is not on this machine")
        host = self.hosts.get(address, "Connection refused")
        if host is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(host, str) or host is None:
            raise ConnectFailed(host or "unreachable")
        peer = host()
        self.peers.append(peer)
        return FakeConnection(peer, address, source)

    @property
    def messages(self) -> list[tuple[str, tuple[str, ...], bytes]]:
        return [message for peer in self.peers for message in peer.messages]
