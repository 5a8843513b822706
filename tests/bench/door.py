"""The door alone: what it takes mqcd, Postfix and stock aiosmtpd to take a message in.

    python tests/bench/door.py [--messages 1000] [--sessions 20] [--rounds 3] [--only mqcd,postfix]

Messages of 4 KB over `--sessions` sessions: a connection for each (`new`), kept ones (`kept`), both from
smtp-source, and each with STARTTLS from processes of the bench's own (smtp-source has no TLS; these wait by
epoll too), in full (`tls new`) or resumed (`tls resumed`). A session resumes the TLS session of its first
connection each time: the ssl module decodes the server's certificate whenever a session is read or set, which
costs the source as much as half a handshake. The server sends a ticket all the same. mqcd, one shard, takes
mail into its real queue and Postfix into its own, both synced; neither delivers (one next hop refuses,
Postfix defers). aiosmtpd discards at once. Peers in turns, medians of the rounds.

Servers have one half of the processors, the source the other. `rate` is then what a server takes in, unless
`source_busy`, the share of its processors that the source uses, is near 1: then it is what the source gives.
`cpu_us`, the processor time of all of a server's processes for a message, does not depend on the source, and
other work on the machine disturbs it least: `cpu_times_postfix` compares what a processor takes in. Needs
root and Debian's postfix; runs in a network namespace of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import resource
import select
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import kit, servers
from tests.bench.peers.__main__ import isolate
from tests.fakes.certificates import Authority

HOST = "door.bench.example"
_CONTENT = b"Subject: measured\r\n\r\n" + (b"x" * 76 + b"\r\n") * 52 + b".\r\n"
_ENVELOPE = (b"MAIL FROM:<sender@example.org>", b"RCPT TO:<to@example.com>", b"DATA")
_DISCARDING = """
import asyncio, ssl, sys
from aiosmtpd.handlers import Sink
from aiosmtpd.smtp import SMTP
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(sys.argv[2])
async def main():
    make = lambda: SMTP(Sink(), tls_context=context, hostname="aiosmtpd")
    loop, port = asyncio.get_running_loop(), int(sys.argv[1])
    server = await loop.create_server(make, "127.0.0.1", port, backlog=500)
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Mode:
    """How a source connects."""

    plain: tuple[str, ...] | None = None
    """Options of smtp-source; None = over TLS."""
    resumed: bool = False


MODES = {
    "new": Mode(()),
    "kept": Mode(("-d",)),
    "tls new": Mode(),
    "tls resumed": Mode(resumed=True),
}


class Source:
    """One session's connections over TLS, one after the other; its generators yield to wait for octets."""

    def __init__(self, port: int, mode: Mode, context: ssl.SSLContext) -> None:
        self._port, self._mode, self._context = port, mode, context
        self._session: ssl.SSLSession | None = None

    def run(self, messages: int, polled: select.epoll) -> Iterator[int]:
        """Send each message over a connection of its own, whose descriptor is yielded."""
        for _ in range(messages):
            plain = socket.create_connection(("127.0.0.1", self._port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setblocking(False)
            number = plain.fileno()
            polled.register(number, select.EPOLLIN)
            for _ in self._send(plain):
                yield number

    def _send(self, plain: socket.socket) -> Iterator[None]:
        yield from self._expect(plain, b"220")
        yield from self._say(plain, b"EHLO source.bench.example", b"250")
        yield from self._say(plain, b"STARTTLS", b"220")
        peer = self._context.wrap_socket(
            plain, do_handshake_on_connect=False, server_hostname=HOST, session=self._session
        )
        while not _done(peer):
            yield
        yield from self._say(peer, b"EHLO source.bench.example", b"250")
        for command, code in zip(_ENVELOPE, (b"250", b"250", b"354"), strict=True):
            yield from self._say(peer, command, code)
        peer.sendall(_CONTENT)
        yield from self._expect(peer, b"250")
        if self._session is not None and not peer.session_reused:
            raise SystemExit("the server does not resume sessions")
        if self._mode.resumed and self._session is None:
            self._session = peer.session
        yield from self._say(peer, b"QUIT", b"221")
        peer.close()

    def _say(self, peer: socket.socket, command: bytes, code: bytes) -> Iterator[None]:
        peer.sendall(command + b"\r\n")
        return self._expect(peer, code)

    def _expect(self, peer: socket.socket, code: bytes) -> Iterator[None]:
        reply = b""
        while not reply.endswith(b"\r\n") or reply.splitlines()[-1][3:4] == b"-":
            yield
            try:
                reply += peer.recv(16384) or b"nothing more\r\n"
            except ssl.SSLWantReadError:
                continue
        if not reply.startswith(code):
            raise SystemExit(f"expected {code!r}, the server said {reply!r}")


def _done(peer: ssl.SSLSocket) -> bool:
    """Go on with the handshake; whether it is done."""
    try:
        peer.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def work(port: int, mode: Mode, authority: str, messages: int, sessions: int) -> tuple[int, float]:
    """One process of the source; the messages that it has sent, and the processor time in s that it took."""
    began = time.process_time()
    # What a client verifies is no cost of the server's.
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with select.epoll() as polled:
        running = [Source(port, mode, context).run(messages // sessions, polled) for _ in range(sessions)]
        waiting = {next(source): source for source in running}
        while waiting:
            for number, _ in polled.poll():
                source = waiting.pop(number)
                if (awaited := next(source, None)) is not None:
                    waiting[awaited] = source
    return messages // sessions * sessions, time.process_time() - began


@contextlib.contextmanager
def _mqcd(base: Path, certificate: Path) -> Iterator[servers.Server]:
    closed = {"": f"127.0.0.1:{servers.free_port()}"}
    server = "<maxpeerconnections>0</maxpeerconnections>"
    tls = f'<ssl latent="Y" certfile="{certificate}"/>'
    with servers.mqcd(base, closed, server=server, listener=tls) as running:
        yield running


@contextlib.contextmanager
def _postfix(base: Path, certificate: Path) -> Iterator[servers.Server]:
    own = base / "postfix.pem"
    shutil.copy(certificate, own)
    main = f"defer_transports = smtp\nsmtpd_tls_security_level = may\nsmtpd_tls_chain_files = {own}\n"
    with servers.postfix(base, {"": "127.0.0.1:9"}, main) as running:
        yield running


@contextlib.contextmanager
def _aiosmtpd(base: Path, certificate: Path) -> Iterator[servers.Server]:
    port = servers.free_port()
    process = subprocess.Popen([sys.executable, "-c", _DISCARDING, str(port), str(certificate)], cwd=base)
    try:
        servers.until(lambda: servers.answers(port), "aiosmtpd")
        yield servers.Server(port, process.pid)
    finally:
        process.kill()
        process.wait()


Peer = Callable[[Path, Path], contextlib.AbstractContextManager[servers.Server]]
PEERS: Mapping[str, Peer] = {"mqcd": _mqcd, "postfix": _postfix, "aiosmtpd": _aiosmtpd}


def measure(
    pool: ProcessPoolExecutor, server: servers.Server, mode: Mode, authority: Path, given: argparse.Namespace
) -> dict[str, float]:
    """One load."""
    sources = len(os.sched_getaffinity(0))
    each = (given.messages // sources, max(given.sessions // sources, 1))
    sent = each[0] // each[1] * each[1] * sources
    spent, began = sum(server.spent()), time.monotonic()
    if mode.plain is not None:
        size = ["-s", str(given.sessions), "-m", str(sent), "-l", "4096", *mode.plain]
        ends = ["-f", "sender@example.org", "-t", "to@example.com", f"inet:127.0.0.1:{server.port}"]
        before = _ended()
        subprocess.run(["smtp-source", *size, *ends], check=True)
        busy = _ended() - before
    else:
        loads = [pool.submit(work, server.port, mode, str(authority), *each) for _ in range(sources)]
        if sum(load.result()[0] for load in loads) < sent:
            raise SystemExit("not all messages were taken")
        busy = sum(load.result()[1] for load in loads)
    took = time.monotonic() - began
    cpu_us = (sum(server.spent()) - spent) / sent * 1e6
    return {"rate": sent / took, "cpu_us": cpu_us, "source_busy": busy / took / sources}


def _ended() -> float:
    """Processor time of this process's children that have ended, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PEERS))
    given = parser.parse_args()
    isolate()
    found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    fork = multiprocessing.get_context("fork")
    processors = sorted(os.sched_getaffinity(0))
    half = (len(processors) + 1) // 2
    ours, theirs = processors[-half:], processors[:half]
    with kit.workplace() as base, ProcessPoolExecutor(half, mp_context=fork) as pool:
        os.chmod(base, 0o755)
        (base / "authority").mkdir()
        authority = Authority(base / "authority")
        authority.sign(HOST, f"DNS:{HOST}")
        certificate = authority.certificate.with_name(f"{HOST}.pem")
        for number in range(given.rounds):
            for name in given.only.split(","):
                place = base / f"{number}-{name}"
                place.mkdir()
                os.sched_setaffinity(0, theirs)
                with PEERS[name](place, certificate) as server:
                    # Its processes are there, or are forked by those; those of the source begin now.
                    os.sched_setaffinity(0, ours)
                    for mode, how in MODES.items():
                        figures = measure(pool, server, how, authority.certificate, given)
                        found[mode, name].append(figures)
                        kit.show(f"  {mode}, {name}", figures)
                shutil.rmtree(place)
    for (mode, name), rounds in found.items():
        medians = kit.medians(rounds)
        if name != "postfix" and (mode, "postfix") in found:
            postfix = kit.medians(found[mode, "postfix"])
            medians["times_postfix"] = medians["rate"] / postfix["rate"]
            medians["cpu_times_postfix"] = postfix["cpu_us"] / medians["cpu_us"]
        kit.show(f"{mode}, {name}", medians)


if __name__ == "__main__":
    main()
