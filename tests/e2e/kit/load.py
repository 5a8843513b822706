"""Clients that send without a pause and note what was acknowledged, whatever happens to the server."""

from __future__ import annotations

import smtplib
import subprocess
import threading
from collections.abc import Callable

from tests.e2e.kit import mail
from tests.e2e.kit.waiting import DEADLINE, Board

Make = Callable[[str], bytes]


class Load:
    """Threads that send message after message to one port, each to a recipient of its own.

    A connection that breaks is opened again. `acknowledged` has the recipient of each message that got
    its 250; one whose 250 did not come is nobody's promise and is forgotten.
    """

    def __init__(self, port: int, threads: int, make: Make, *, domain: str = "load.test") -> None:
        self.acknowledged: Board[str] = Board()
        self.port = port
        self._make = make
        self._domain = domain
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Send no more; return when the last reply is there."""
        self._ending.set()
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive(), "a client still waits for a reply"

    def more(self, count: int) -> None:
        """Wait until so many more have been acknowledged."""
        self.acknowledged.several(
            lambda _: True, count, "acknowledged messages", after=len(self.acknowledged)
        )

    def _run(self, number: int) -> None:
        done = 0
        while not self._ending.is_set():
            try:
                with smtplib.SMTP(
                    "127.0.0.1", self.port, local_hostname=mail.HELO, timeout=DEADLINE
                ) as client:
                    while not self._ending.is_set():
                        done += 1
                        self._send(client, f"{self._domain.partition('.')[0]}-{number}-{done}")
            except (OSError, smtplib.SMTPException):
                # The server is down or restarts; a short wait, since nobody tells when it is back.
                self._ending.wait(0.02)

    def _send(self, client: smtplib.SMTP, token: str) -> None:
        recipient = f"{token}@{self._domain}"
        client.sendmail("sender@origin.test", [recipient], self._make(token))
        self.acknowledged.put(recipient)


class SmtpSource:
    """smtp-source, run again and again, since it gives up when a connection breaks."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.runs = 0

    def __enter__(self) -> SmtpSource:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(DEADLINE)

    def _run(self) -> None:
        while not self._ending.is_set():
            self.runs += 1
            process = subprocess.Popen(
                ["smtp-source", "-s", "4", "-l", "4096", "-m", "100", "-f", "source@origin.test",
                 "-t", "source@load.test", "-M", mail.HELO, f"127.0.0.1:{self._port}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            process.wait(DEADLINE)
            self._ending.wait(0.02)
