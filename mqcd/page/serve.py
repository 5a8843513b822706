"""Serves an application on bound sockets, until it is to end. HTTP/1.1 by uvicorn and h11.

A peer that sends no request in HEAD_S is cut off; at the limit on connections it is the one that has been
waited for longest. A peer that does not read its answers is cut off after SEND_S. An answer under way when
the end comes has END_S left. A certificate that is replaced is used from the next handshake on, half a minute
later at most.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mqcd.core.ports import Clock
from mqcd.net.securing.server import BadTlsFile, Certificates, ServerTlsTerms
from mqcd.page.bounds import SEND_S
from mqcd.page.terms import Terms

log = logging.getLogger("mqcd.page")

HEAD_S = 10.0
MOST = 128
"""Connections at once."""
END_S = 2
_MAX_HEAD = 16_384
BACKLOG = 100
LOOK_MS = 30_000
"""The files of TLS are looked at so often."""


class _Connection(H11Protocol):
    """One that waits for each request, and for its peer to read, for a limited time."""

    _limit: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._expect()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        before = self.cycle
        super().on_response_complete()
        if self.transport.is_closing():
            # It closes once all is sent, and says no more of it.
            self._expect_reader()
        elif self.cycle is before:
            self._expect()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_sending()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_sending()
        super().connection_lost(exc)

    def _expect_reader(self) -> None:
        if self._sending is None and self.transport.get_write_buffer_size():
            self._sending = self.loop.call_later(SEND_S, self.transport.abort)

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _expect(self) -> None:
        self._stop_waiting()
        self._limit = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _make_room(self) -> None:
        if len(self.connections) <= MOST:
            return
        others = [each for each in self.connections if isinstance(each, _Connection)]
        waiting = [(each._limit.when(), each) for each in others if each._limit is not None]
        if waiting:
            min(waiting, key=lambda pair: pair[0])[1].transport.abort()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's own."""
        yield


async def serve(
    app: ASGIApp, terms: Terms, sockets: Sequence[socket.socket], ended: asyncio.Event, clock: Clock
) -> None:
    """Until `ended`. Raises BadTlsFile, OSError."""
    files = _files(terms)
    certificates = Certificates(files) if files is not None else None
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        # Warnings are of single peers' requests.
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        limit_concurrency=2 * MOST,
        timeout_graceful_shutdown=END_S,
        h11_max_incomplete_event_size=_MAX_HEAD,
        ssl_certfile=terms.page.certfile,
        ssl_keyfile=terms.page.keyfile,
    )
    server = _Server(config)
    config.load()
    renewing = asyncio.ensure_future(_renew(certificates, config.ssl, clock))
    serving = asyncio.ensure_future(server.serve(list(sockets)))
    ending = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        ending.cancel()
        renewing.cancel()


def _files(terms: Terms) -> ServerTlsTerms | None:
    certificate, key = terms.page.certfile, terms.page.keyfile
    if certificate is None:
        return None
    return ServerTlsTerms(certificates=(certificate,), keys=() if key is None else (key,))


async def _renew(certificates: Certificates | None, context: ssl.SSLContext | None, clock: Clock) -> None:
    """Use other files from the next handshake on, once they go together."""
    while certificates is not None and context is not None:
        await clock.sleep(LOOK_MS)
        if not certificates.changed:
            continue
        try:
            certificates = Certificates(certificates.terms)
            [certificate], keys = certificates.terms.certificates, certificates.terms.keys
            context.load_cert_chain(certificate, next(iter(keys), None), password="")
        except (BadTlsFile, OSError) as error:
            log.error("the old certificate stays: %s", error)
        else:
            log.info("the certificate has been read again")
