"""The outcomes of one transaction, recipient by recipient. Pure.

Guarantees: each recipient has exactly one outcome in the end, and the first one counts; what a reply to DATA,
to the content or to its end says holds for those alone whose RCPT was accepted.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqcd.core.model import Phase
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.smtp.exchange import Outcome, Result
from mqcd.deliver.smtp.negotiation import local
from mqcd.deliver.smtp.replies import RawReply

WANTS_LOGIN = frozenset({530, 534, 535, 538})
"""Replies that ask for a login or for TLS, or for better ones (RFC 4954, 6; RFC 3207, 4)."""
ALL = -1
"""In place of a recipient's index: the reply is for all that were accepted."""


class Outcomes:
    """Starts with all recipients undecided."""

    __slots__ = ("_list", "_relay", "accepted")

    def __init__(self, count: int, relay: bool = False) -> None:
        self._list: list[Outcome | None] = [None] * count
        self._relay = relay
        self.accepted: list[int] = []
        """Indexes of the recipients whose RCPT was accepted, in order."""

    def __len__(self) -> int:
        return len(self._list)

    @property
    def known(self) -> list[Outcome]:
        """The outcomes that there are, in the recipients' order."""
        return [outcome for outcome in self._list if outcome is not None]

    @property
    def decided(self) -> bool:
        """Whether each recipient has its outcome."""
        return None not in self._list

    def accept(self, index: int) -> None:
        if self._list[index] is None:
            self.accepted.append(index)

    def concerned(self, index: int) -> Iterable[int]:
        """The recipients of a reply to `index`, see ALL."""
        return self.accepted if index == ALL else (index,)

    def decide(self, indexes: Iterable[int], outcome: Outcome) -> None:
        """Set the outcome of recipients without one."""
        for index in indexes:
            if self._list[index] is None:
                self._list[index] = outcome

    def delivered(self, indexes: Iterable[int], raw: RawReply) -> None:
        """The server took responsibility for them."""
        self.decide(indexes, Outcome(result=Result.DELIVERED, reply=raw.reply(), phase=Phase.DOT))

    def refuse(self, indexes: Iterable[int], raw: RawReply, phase: Phase) -> None:
        """The server refused them; a relay that asks for a login or TLS is a mistake of this server's
        operator."""
        reply = raw.reply()
        if self._relay and raw.code in WANTS_LOGIN:
            reply = local("4.7.0", f"the relay requires a login or TLS: {reply}")
        # RFC 5321, 4.5.3.1.10: 552 in answer to RCPT is the old way to say 452, too many recipients.
        temporary = reply.code < 500 or (reply.code == 552 and phase is Phase.RCPT)
        result = Result.DEFERRED if temporary else Result.BOUNCED
        self.decide(indexes, Outcome(result=result, reply=reply, phase=phase))

    def bounce(self, index: int, reply: Reply) -> None:
        """This one cannot be sent the message by this way."""
        self.decide([index], Outcome(result=Result.BOUNCED, reply=reply, phase=Phase.MAIL))

    def undecided(self) -> list[int]:
        """Indexes of the recipients without an outcome."""
        return [index for index, outcome in enumerate(self._list) if outcome is None]

    def lost(self, reply: Reply, phase: Phase, possibly: bool) -> None:
        """The session is over: undecided recipients are deferred, `possibly` delivered."""
        outcome = Outcome(result=Result.DEFERRED, reply=reply, phase=phase, possibly_delivered=possibly)
        self.decide(range(len(self)), outcome)
