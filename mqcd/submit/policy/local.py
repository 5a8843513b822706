"""Mail of programs on this machine: who its users are, and what they may send.

* A client of the socket is the user that the kernel names. It needs no login, may send to any domain, and may
  leave a domain out: the server's own name completes it.
* A user may send as itself, `user@announcehost` or in the server's own domain, or with what `senders` lists;
  root with any sender.
* Date and Message-ID are added where they are missing, as on a submission listener. Lines have any length:
  nobody reads a refusal of what cron sends.

Settings read: those of submit/local; application/announcehost (by the caller).
"""

from __future__ import annotations

from mqcd.config.settings import LOCAL, ListenerSettings, LocalSettings, SenderRightSettings, ServerSettings
from mqcd.submit.auth.senders import ANY, Senders
from mqcd.submit.policy.rules import Rules

_ROOT = SenderRightSettings(user=("root",), addresses=(ANY,))


def listener_of(local: LocalSettings, announcehost: str) -> ListenerSettings:
    """The settings of its door."""
    server = ServerSettings(
        announcehost=announcehost,
        maxmsgsize=local.maxmsgsize,
        maxrecips=0,
        maxline=0,
        filter=local.filter,
        filter_options=local.filter_options,
        senders=local.senders,
        submission=True,
        # The longest time that a listener holds mail counts as a delay (ADR 31): by default there is none.
        ext_futurerelease=False,
    )
    return ListenerSettings(name=LOCAL, interface="", port=0, server=server)


def for_programs(rules: Rules) -> Rules:
    """The rules, with what holds for the users of this machine."""
    host = rules.settings.announcehost
    rules.senders = Senders([*rules.settings.senders, _ROOT], {host, rules.policy.own_domain})
    rules.bare_domain = host
    return rules
