"""Settings that mqcd reads and does not apply: parts that it leaves out, parts still to come.

Two tables by path. A setting that restricts or redirects is an error: ignoring it would accept or send mail
that its writer wanted kept out. All others are warnings. A setting that becomes effective leaves its table,
and nothing else changes. A path covers everything inside its element, where only the paths in
NOT_YET_RESTRICTING are still looked for.
"""

import re

from mqcd.config.document import Node
from mqcd.config.kinds.fields import WORDS

_SERVER = "mta/submit/listeners/listener/server"
_SSL = "mta/submit/listeners/listener/ssl"
_PEERS = f"{_SERVER}/remotenets/remotenet"
_CLIENT = "mta/deliver/client"
_RELAY = "mta/deliver/relays/relay"

_FILTER = "which messages are accepted"

NOT_YET_RESTRICTING = {
    f"{_SERVER}/filter@factory": f"{_FILTER} (class= names an aiosmtpd handler)",
    f"{_PEERS}/filter@factory": f"{_FILTER} (class= names an aiosmtpd handler)",
    f"{_SERVER}/blacklist/dnslists": "which clients may connect (a filter may ask such lists)",
    f"{_PEERS}/blacklist/dnslists": "which clients may connect (a filter may ask such lists)",
    f"{_SSL}@tspath": "which clients may log in by certificates (use trust)",
    f"{_SSL}@peercert": "which certificate of clients is accepted (use trust)",
    f"{_RELAY}/ssl@tspath": "which certificates are accepted (use client/trust and verify)",
    f"{_RELAY}/ssl@peercert": "which certificate is accepted (use verify)",
}
"""Settings that restrict and have no effect yet, and what each would restrict: errors."""

_NO_PART = "mqcd has no such part"
_NOTIFIED = "mqcd starts at once and does not poll"
_LATER = "it has no effect yet"
_TRACED = "no dialogue is stored; mqcd trace shows those under way"
_OWN_AUDIT = "audit lines have one format and are written within a second"
_NO_KEYSTORE = "there are no key stores: use a relay's certfile and keyfile"

_NO_KEYSTORE_HERE = "there are no key stores: use certfile and keyfile"
_LOGGER = ("buffer", "class", "delta", "flush", "level", "tid")
"""Attributes of Mailismus's loggers that say how a line looks and when it is written."""

NO_EFFECT = {
    "application/database": _NO_PART,
    "directory": _NO_PART,
    "message_store": _NO_PART,
    "imap": _NO_PART,
    "pop3server": _NO_PART,
    "pop3download": _NO_PART,
    f"{_SSL}@cert": _NO_KEYSTORE_HERE,
    f"{_SSL}@certpass": _NO_KEYSTORE_HERE,
    f"{_SSL}@kspath": _NO_KEYSTORE_HERE,
    "mta/queue/deferred_maxignore": "new and due mail always take turns",
    f"{_SERVER}/transcript": _TRACED,
    f"{_PEERS}/transcript": _TRACED,
    f"{_SERVER}/delay_close": _NO_PART,
    f"{_SERVER}/extSTARTTLS": "a listener whose ssl is latent offers STARTTLS",
    f"{_SERVER}/niobuffers": "mqcd sizes its buffers itself",
    f"{_SERVER}/localdelivery": _NO_PART,
    f"{_SERVER}/spf_sender_rewrite": _NO_PART,
    f"{_SERVER}/srcrouted_bounces_recip": _NO_PART,
    **{f"mta/deliver/audit@{name}": _OWN_AUDIT for name in _LOGGER},
    "mta/deliver/interval_low": _NOTIFIED,
    "mta/deliver/interval_high": _NOTIFIED,
    "mta/deliver/interval_error": _NOTIFIED,
    "mta/deliver/delay_start": _NOTIFIED,
    "mta/deliver/maxsenderlife": _LATER,
    f"{_CLIENT}/transcript": _TRACED,
    f"{_CLIENT}/delay_close": _NO_PART,
    f"{_CLIENT}/niobuffers": "mqcd sizes its buffers itself",
    f"{_CLIENT}/nomaxsrvconns": "maxserverconnections always applies",
    f"{_CLIENT}/anonssl@latent": "hosts found by DNS get STARTTLS",
    f"{_CLIENT}/anonssl@cert": _NO_KEYSTORE,
    f"{_CLIENT}/anonssl@certpass": _NO_KEYSTORE,
    f"{_CLIENT}/anonssl@kspath": _NO_KEYSTORE,
    f"{_CLIENT}/anonssl@tspath": "use client/trust",
    f"{_CLIENT}/anonssl@peercert": "anonssl checks no certificate",
    f"{_RELAY}/ssl@cert": _NO_KEYSTORE,
    f"{_RELAY}/ssl@certpass": _NO_KEYSTORE,
    f"{_RELAY}/ssl@kspath": _NO_KEYSTORE,
    **{f"mta/report/audit@{name}": _OWN_AUDIT for name in _LOGGER},
    "mta/report/interval_low": _NOTIFIED,
    "mta/report/interval_high": _NOTIFIED,
    "mta/report/interval_error": _NOTIFIED,
    "mta/report/interval_housekeeping": _NOTIFIED,
    "mta/report/delay_start": _NOTIFIED,
    "mta/report/filebufsiz": "mqcd sizes its buffers itself",
    "mta/report/ndr_copies_folder": _LATER,
}
"""Settings that are ignored, and why: warnings."""

_NOTHING = re.compile(r"|[-.]|0(?:[wdhms]|ms|[kmg]b?)?", re.IGNORECASE)


def asks_nothing(text: str) -> bool:
    """Whether a value switches nothing on: empty, none, no or zero."""
    return _NOTHING.fullmatch(text) is not None or WORDS.get(text.lower()) is False


def _quiet(node: Node) -> bool:
    """Whether an element switches nothing on, by its text or, where it has none, by all it holds."""
    if node.text:
        return asks_nothing(node.text)
    return not node.children and all(map(asks_nothing, node.attributes.values()))


def restricts(path: str, node: Node) -> str | None:
    """What an element would restrict if it had its effect; None if nothing."""
    what = NOT_YET_RESTRICTING.get(path)
    if what is None or asks_nothing(node.attributes.get("enabled", "Y")):
        return None
    return None if _quiet(node) else what


def no_effect(path: str, node: Node) -> str | None:
    """Why an element has no effect; None if it asks for none. An empty element asks for its default."""
    why = NO_EFFECT.get(path)
    if why is None or asks_nothing(node.attributes.get("enabled", "Y")):
        return None
    return None if node.text and asks_nothing(node.text) else why


def is_known(path: str) -> bool:
    """Whether one of the tables names this path."""
    return path in NOT_YET_RESTRICTING or path in NO_EFFECT


def known_names(path: str) -> list[str]:
    """The elements and attributes that the tables name right inside the element at `path`."""
    stem = f"{path}/" if path else ""
    names = [*NOT_YET_RESTRICTING, *NO_EFFECT]
    inside = [name[len(stem) :] for name in names if name.startswith(stem)]
    attributes = [name[len(path) :] for name in names if path and name.startswith(f"{path}@")]
    return [name for name in inside if "/" not in name and "@" not in name] + attributes
