"""Reports as messages for the queue: who gets them, and what they return of the message they are about.

Settings read: the whole of `ReportSettings`, but for queuecache.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mqcd.config.settings import ReportSettings
from mqcd.core.dsn import parameters
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Body, Delivered, Envelope, Origin, Recipient, Settlement, Submission
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.spid import format_spid
from mqcd.core.transition import with_last_words
from mqcd.report.dsn import Action, Notice, compose
from mqcd.report.original import Excerpt, excerpt

log = logging.getLogger(__name__)

_CHUNK = 65536


class ReportMaker:
    """`mqcd.core.ports.Notifier`, and the reports on bounces."""

    def __init__(self, store: QueueStore, clock: Clock, settings: ReportSettings) -> None:
        self._store = store
        self._clock = clock
        self.settings = settings
        """May be exchanged at any time."""

    def readers(self, recipient: Recipient) -> list[str]:
        """Who gets a report on it, the sender or whoever stands in for it first; each once."""
        settings = self.settings
        first = recipient.envelope.sender
        if settings.ndr_recip_redirect is not None:
            first = settings.ndr_recip_redirect
        readers = [] if first == "." else [first]
        return list(dict.fromkeys([*readers, *settings.ndr_recips_additional]))

    async def failed(self, bounces: Sequence[Recipient]) -> Submission:
        """The report on bounces of one message, of which somebody is to be told."""
        readers = self.readers(bounces[0])
        return await self._submission(bounces, readers, Action.FAILED)

    async def delivered(self, settlements: Sequence[Settlement], final: bool) -> Sequence[Submission]:
        """See `mqcd.core.ports.Notifier`."""
        recipients = [
            with_last_words(each.recipient, each.verdict)
            for each in settlements
            if isinstance(each.verdict, Delivered)
        ]
        if not recipients or recipients[0].is_report or not self.settings.generate_ndr:
            return ()
        sender = recipients[0].envelope.sender
        return [await self._submission(recipients, [sender], Action.DELIVERED if final else Action.RELAYED)]

    async def _submission(self, about: Sequence[Recipient], readers: list[str], action: Action) -> Submission:
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
                original=await self._original(about[0], action),
            )
        )
        envelope = Envelope(
            spid=spid,
            sender="",
            received=now,
            origin=Origin.REPORT,
            body=Body.EIGHT if report.eight_bit else Body.SEVEN,
            smtputf8=report.smtputf8 or not all(reader.isascii() for reader in readers),
        )
        return Submission(envelope=envelope, recipients=readers, content=report.content)

    async def _original(self, recipient: Recipient, action: Action) -> Excerpt | None:
        """What the report returns of the message; a report without it is better than no report."""
        limit = self.settings.attachmsg
        if not limit:
            return None
        head = b""
        try:
            content = await self._store.content(recipient)
            try:
                while len(head) < limit and (chunk := await content.read(min(limit - len(head), _CHUNK))):
                    head += chunk
            finally:
                content.close()
        except StoreUnavailable as error:
            log.warning("report on %s goes without its message: %s", format_spid(recipient.spid), error)
            return None
        ret = parameters(recipient.envelope.dsn).get("RET", "").upper()
        # RFC 3461, 4.3: who is told of success gets no more back than the headers.
        headers_only = ret == "HDRS" or action is not Action.FAILED
        return excerpt(head, content.size, headers_only=headers_only)
