"""Makes reports as messages for the queue: their recipients, and the part of the failed message that they
return.

Settings read: the whole of `ReportSettings`, but for queuecache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from mqcd.config.settings import ReportSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import (
    Body,
    Delivered,
    Envelope,
    Origin,
    PutOff,
    Recipient,
    Settlement,
    Submission,
)
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import with_last_words
from mqcd.core.smtp.dsn import parameters
from mqcd.core.smtp.marks import marks_of
from mqcd.report.dsn import Action, Notice, compose
from mqcd.report.original import Excerpt, excerpt

log = logging.getLogger(__name__)

_CHUNK = 65536
_NO_EIGHT_BIT = "5.6.3"
"""Conversion required but not supported (RFC 3463, 3.7)."""


class ReportMaker:
    """`mqcd.core.ports.Notifier`, and the reports on bounces."""

    def __init__(
        self, store: QueueStore, clock: Clock, settings: ReportSettings, trusts: Callable[[Envelope], bool]
    ) -> None:
        """`trusts`: whether the client that sent a message is one that the server relays for."""
        self._trusts = trusts
        self._store = store
        self._clock = clock
        self.settings = settings
        """May be replaced at any time."""

    def readers(self, recipient: Recipient) -> list[str]:
        """Who gets a report on it, the sender or its substitute first; each once."""
        settings = self.settings
        first = recipient.envelope.sender
        if settings.ndr_recip_redirect is not None:
            first = settings.ndr_recip_redirect
        # A dot in `ndr_recip_redirect` is nobody. No sender is a dot.
        readers = [] if first == "." else [first]
        return list(dict.fromkeys([*readers, *settings.ndr_recips_additional]))

    def returns_all(self, envelope: Envelope) -> bool:
        """Whether a report on a failure may return much of its message: the sender wants it (RET=FULL, RFC
        3461, 4.3), and may have it."""
        return _ret(envelope) == "FULL" and self._returns_body(envelope)

    def _returns_body(self, envelope: Envelope) -> bool:
        """Whether more than the headers goes back. A client can forge the sender and so send it any content.
        The sender gets headers only, unless the client or the report address is trusted."""
        return self.settings.ndr_recip_redirect is not None or self._trusts(envelope)

    async def failed(self, bounces: Sequence[Recipient]) -> Submission:
        """The report on bounces of one message. They have `readers` and a sender: `ReportTask._silence` sees
        to that."""
        readers = self.readers(bounces[0])
        return await self._submission(bounces, readers, Action.FAILED)

    async def delivered(self, settlements: Sequence[Settlement], final: bool) -> Sequence[Submission]:
        recipients = [
            with_last_words(each.recipient, each.verdict)
            for each in settlements
            if isinstance(each.verdict, Delivered)
        ]
        return await self._to_sender(recipients, Action.DELIVERED if final else Action.RELAYED)

    async def delayed(self, settlements: Sequence[Settlement]) -> Sequence[Submission]:
        recipients = []
        until = 0
        for each in settlements:
            if isinstance(each.verdict, PutOff):
                recipients.append(with_last_words(each.recipient, each.verdict))
                until = max(until, each.verdict.warning)
        return await self._to_sender(recipients, Action.DELAYED, until)

    async def _to_sender(
        self, about: Sequence[Recipient], action: Action, until: int = 0
    ) -> Sequence[Submission]:
        """A report to the sender alone, unless it is the null one or reports are switched off."""
        if not about or about[0].is_report or not self.settings.generate_ndr:
            return ()
        return [await self._submission(about, [about[0].envelope.sender], action, until)]

    async def _submission(
        self, about: Sequence[Recipient], readers: list[str], action: Action, until: int = 0
    ) -> Submission:
        settings = self.settings
        spid = self._store.reserve(len(readers) > 1)
        now = self._clock.now()
        report = compose(
            Notice(
                spid=spid,
                date=now,
                action=action,
                reporting_mta=settings.announcemta,
                from_address=settings.ndr_from,
                to_address=readers[0],
                subject=settings.ndr_subject if action is Action.FAILED else "",
                introduction=settings.ndr_textpart if action is Action.FAILED else "",
                recipients=about,
                retry_until=until,
                original=await self._original(about, action),
            )
        )
        envelope = Envelope(
            spid=spid,
            sender="",
            received=now,
            origin=Origin.REPORT,
            body=Body.EIGHT if report.eight_bit else Body.SEVEN,
            smtputf8=report.smtputf8 or not all(reader.isascii() for reader in readers),
            message_id=marks_of(report.content).message_id,
        )
        return Submission(envelope=envelope, recipients=readers, content=report.content)

    async def _original(self, about: Sequence[Recipient], action: Action) -> Excerpt | None:
        """The returned part of the message; a report without it is better than none."""
        recipient = about[0]
        limit = self.settings.attachmsg
        if not limit:
            return None
        failed = action is Action.FAILED
        if failed and self.returns_all(recipient.envelope):
            limit = max(limit, self.settings.attachmsg_full)
        head = b""
        try:
            content = await self._store.content(recipient)
            try:
                while len(head) < limit and (chunk := await content.read(min(limit - len(head), _CHUNK))):
                    head += chunk
            finally:
                content.close()
        except StoreUnavailable as error:
            name = format_spid(recipient.spid)
            log.warning("report on %s goes without its message: %s", name, error, extra={"spid": name})
            return None
        # RFC 3461, 4.3: a report on anything but a failure returns no more than the headers.
        returns_body = failed and self._returns_body(recipient.envelope)
        headers_only = _ret(recipient.envelope) == "HDRS" or not returns_body
        # What failed for its 8-bit octets may meet the same next hop on its way back.
        plain = any(each.status == _NO_EIGHT_BIT for each in about)
        returned = excerpt(head, content.size, headers_only=headers_only or plain)
        return returned if returned.octets.isascii() or not plain else None


def _ret(envelope: Envelope) -> str:
    return parameters(envelope.dsn).get("RET", "").upper()
