"""Documents for the tests of the configuration: made of a path, or loaded from tests/data."""

import pathlib

from mqcd.config.load import Loaded, load_text
from mqcd.config.problems import BadConfiguration, Remark

CONF = pathlib.Path("/srv/mail/conf")
VAR = pathlib.Path("/srv/mail/var")
HOST = "mx.example.org"

# Left out, they give remarks of their own.
_NEEDED = {
    "webhook": ' name="a" url="https://a.example/"',
    "listener": ' interface="127.0.0.1"',
    "relay": ' address="relay.example.net"',
    "remotenet": ' ip="192.0.2.0/24"',
    "zone": ' name="bulk"',
    "destination": ' match="example.net"',
    "sender": ' match="example.net" rate="1/s"',
    "quota": ' by="user"',
    "domain": ' name="held.example"',
    "rule": ' action="defer"',
}


def document(path: str, text: str, attributes: str = "") -> str:
    """A document that says one thing: the element or attribute at `path` is `text`."""
    elements, _, attribute = path.partition("@")
    *around, last = elements.split("/")
    given = f' {attribute}="{text}"' if attribute else attributes
    needed = "" if f" {attribute}=" in _NEEDED.get(last, "") and attribute else _NEEDED.get(last, "")
    inner = f"<{last}{needed}{given}>{'' if attribute else text}</{last}>"
    for name in reversed(around):
        inner = f"<{name}{_NEEDED.get(name, '')}>{inner}</{name}>"
    return f"<mailserver>{inner}</mailserver>"


def loaded(text: str) -> Loaded:
    """What a document means, had it been a file in CONF."""
    return load_text(text.encode(), name="test.xml", conf=CONF, var=VAR, hostname=HOST)


def errors(text: str) -> tuple[Remark, ...]:
    """The errors of a document; none if it loads."""
    try:
        loaded(text)
    except BadConfiguration as bad:
        return bad.remarks
    return ()
