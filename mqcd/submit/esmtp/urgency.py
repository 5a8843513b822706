"""When a message may be sent, and how urgent it is: FUTURERELEASE (RFC 4865), MT-PRIORITY (RFC 6710). Pure.

* A client may have a message held for as long as `extFUTURERELEASE` says; a longer time is refused with 501.
  A time that has passed holds nothing. Mail is neither too old nor late before its release.
* A priority above what the listener grants, or `<priorities>` grants the user, is lowered, and the reply to
  MAIL says so (RFC 6710: 2.3.6). Where a user has several grants, the highest counts.

Both are offered where the listener is for submission, unless the settings say otherwise. Settings read:
extFUTURERELEASE, extMT-PRIORITY, priorities, submission.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from mqcd.config.settings import ServerSettings
from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.parameters import MailParameters
from mqcd.submit.esmtp.refusal import DoorRefused, Reason

TOO_LATE = Reply(code=501, status="5.5.4", text="Held longer than this server holds mail")


class Urgency:
    """One listener's."""

    __slots__ = ("_hold", "_most", "_now", "_of_users", "_offers_priority", "parameters")

    def __init__(self, settings: ServerSettings, now: Callable[[], int]) -> None:
        """`now`: the wall time, ms."""
        self._now = now
        self._hold = settings.hold_max if settings.offers_hold else 0
        self._most = settings.priority_max
        self._of_users: dict[str, int] = {}
        for each in settings.priorities:
            for user in each.user:
                self._of_users[user] = max(each.most, self._of_users.get(user, -9))
        self._offers_priority = settings.offers_priority
        self.parameters = frozenset(
            ({"HOLDFOR", "HOLDUNTIL"} if self._hold else set())
            | ({"MT-PRIORITY"} if settings.offers_priority else set())
        )
        """The parameters of MAIL that are taken."""

    @property
    def varies(self) -> bool:
        """Whether the reply to EHLO changes with the time."""
        return self._hold > 0

    def keywords(self) -> list[str]:
        """The lines of the reply to EHLO."""
        lines = ["MT-PRIORITY"] if self._offers_priority else []
        if self._hold:
            latest = datetime.fromtimestamp((self._now() + self._hold) // 1000, UTC)
            lines.append(f"FUTURERELEASE {self._hold // 1000} {latest:%Y-%m-%dT%H:%M:%SZ}")
        return lines

    def release(self, parameters: MailParameters) -> int:
        """The time before which the message is not to be sent, ms; 0 = at once. Raises DoorRefused."""
        if not (parameters.holdfor or parameters.holduntil):
            return 0
        now = self._now()
        release = parameters.holduntil or now + parameters.holdfor
        if release > now + self._hold:
            raise DoorRefused(Reason.SYNTAX, TOO_LATE)
        return release if release > now else 0

    def priority(self, user: str, asked: int) -> int:
        """The priority that a message of this user ("" = nobody) gets."""
        return min(asked, self._of_users.get(user, self._most)) if asked > 0 else asked


def lowered(priority: int) -> bytes:
    """The reply to a MAIL whose priority was changed to this one."""
    return Reply(code=250, status="2.3.6", text=f"{priority} is the priority of this message").encode()
