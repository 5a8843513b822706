"""The next hop, in a process of its own: counts each recipient by the number in its name, and decides by it.

`python -m tests.bench.peers.sink PORT` takes lines on its input: `begin N MIXED` forgets what came and waits
for N recipients, `stand N` waits for N deferrals of standing mail, `report` asks. It prints a line of JSON
when what it waits for is there, and for each report. Recipients of standing.example are always deferred, and
counted apart; so are recipients without a number, to whom bounces are reported.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable
from typing import cast

import uvloop

from tests.bench.peers.scenarios import STREAMS

_END = b"\r\n.\r\n"
_NAME = re.compile(rb"<(\d+)s(\d)@(standing)?", re.IGNORECASE)
OK, DEFER, REFUSE = 250, 451, 550
_REPLIES = {
    OK: b"250 2.0.0 Ok\r\n",
    DEFER: b"451 4.2.0 Come again\r\n",
    REFUSE: b"550 5.1.1 No such user\r\n",
}


def verdict(number: int) -> int:
    """Of the mix: of 20 recipients 16 are accepted, 3 deferred, 1 refused."""
    place = number % 20
    return REFUSE if place == 19 else DEFER if place >= 16 else OK


class Account:
    """What came of each recipient."""

    def __init__(self, reached: Callable[[], None]) -> None:
        self._reached = reached
        self.standing = self.reports = self._standing_wanted = 0
        self.begin(0, False)

    def begin(self, wanted: int, mixed: bool) -> None:
        """Forget what came; call back once so many recipients have had a verdict."""
        self.mixed, self._wanted, self.settled = mixed, wanted, 0
        self.taken: dict[int, int] = {}
        self.denied: dict[int, int] = {}

    def stand(self, wanted: int) -> None:
        """Call back once so much standing mail was deferred."""
        self._standing_wanted = wanted
        self._stood()

    def ask(self, line: bytes) -> tuple[int, int]:
        """The verdict on a RCPT line, and the recipient's key, -1 for one that is not counted."""
        found = _NAME.search(line)
        if not found:
            return OK, -1
        if found[3]:
            self.standing += 1
            self._stood()
            return DEFER, -1
        number = int(found[1])
        key = number * STREAMS + int(found[2])
        code = verdict(number) if self.mixed else OK
        if code != OK:
            self._settle(key)
            self.denied[key] = code
        return code, key

    def take(self, keys: list[int]) -> None:
        """A message is here, with its final dot."""
        for key in keys:
            if key < 0:
                self.reports += 1
                continue
            self._settle(key)
            self.taken[key] = self.taken.get(key, 0) + 1

    def report(self) -> dict[str, float]:
        """All counts."""
        return {
            "now": time.monotonic(),
            "settled": self.settled,
            "accepted": len(self.taken),
            "twice": sum(count > 1 for count in self.taken.values()),
            "deferred": sum(code == DEFER for code in self.denied.values()),
            "refused": sum(code == REFUSE for code in self.denied.values()),
            "reports": self.reports,
            "standing": self.standing,
        }

    def _settle(self, key: int) -> None:
        if key not in self.taken and key not in self.denied:
            self.settled += 1
            if self.settled == self._wanted:
                asyncio.get_running_loop().call_soon(self._reached)

    def _stood(self) -> None:
        if self._standing_wanted and self.standing >= self._standing_wanted:
            self._standing_wanted = 0
            self._reached()


class Taking(asyncio.Protocol):
    """One connection. Replies of one read leave in one write."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._octets = bytearray()
        self._content = False
        self._keys: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        # Not of this class at run time: uvloop's transports are not.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(b"220 sink.bench.example ESMTP\r\n")

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        self._octets += data
        replies: list[bytes] = []
        while self._dot(replies) if self._content else self._line(replies):
            pass
        if replies:
            self._transport.write(b"".join(replies))
            if replies[-1].startswith(b"221"):
                self._transport.close()

    def _dot(self, replies: list[bytes]) -> bool:
        end = self._octets.find(_END)
        if end < 0:
            # Only what the next read may complete is kept.
            del self._octets[: -len(_END)]
            return False
        del self._octets[: end + len(_END)]
        self._content = False
        self._account.take(self._keys)
        replies.append(_REPLIES[OK])
        return True

    def _line(self, replies: list[bytes]) -> bool:
        end = self._octets.find(b"\n")
        if end < 0:
            return False
        line = bytes(self._octets[: end + 1])
        del self._octets[: end + 1]
        replies.append(self._reply(line[:4].upper(), line))
        return True

    def _reply(self, verb: bytes, line: bytes) -> bytes:
        if verb == b"RCPT":
            code, key = self._account.ask(line)
            if code == OK:
                self._keys.append(key)
            return _REPLIES[code]
        if verb == b"DATA":
            self._content = bool(self._keys)
            return b"354 Go on\r\n" if self._keys else b"554 5.5.1 No valid recipients\r\n"
        if verb == b"EHLO":
            return b"250-sink.bench.example\r\n250-8BITMIME\r\n250-SIZE 0\r\n250 PIPELINING\r\n"
        if verb == b"QUIT":
            return b"221 2.0.0 Bye\r\n"
        self._keys = []
        return _REPLIES[OK]


async def serve(port: int) -> None:
    """Take mail until the input ends."""
    loop = asyncio.get_running_loop()
    account = Account(lambda: print(json.dumps(account.report()), flush=True))
    await loop.create_server(lambda: Taking(account), "127.0.0.1", port, backlog=1024)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("{}", flush=True)
    while line := (await reader.readline()).split():
        if line[0] == b"begin":
            account.begin(int(line[1]), line[2] == b"1")
        elif line[0] == b"stand":
            account.stand(int(line[1]))
        else:
            print(json.dumps(account.report()), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
