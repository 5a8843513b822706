"""The command line of sendmail, as programs write it. Pure.

Options are those of getopt: letters may share a dash (`-ti`), and a value stands behind its letter or is
the next word. What has no effect on how mail is taken here is accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

DELIVER, SMTP, LIST, NOTHING = "m", "s", "p", "i"
"""Modes, as the letter of -b: take a message, speak SMTP, list the queue, rebuild aliases (there are
none)."""
_IGNORED_FLAGS = "EGIJmnsTUx"
_IGNORED_VALUES = "ACDdehLMpX"
_ATTACHED = "dqA"
"""The value of these, if any, stands behind the letter, and is never the next word."""
_TAKES_VALUE = f"bcBfFNoOrRV{_IGNORED_VALUES}"
_CHOOSES = {"I": ("--spid", "{}"), "R": ("--recipient", "*{}*"), "S": ("--sender", "*{}*")}
"""By letter behind -q, the flag of `mqcd queue retry` that selects the same, and its value."""
_LONG = {"--conf": "conf", "--var": "var"}
_MODES = {"a": DELIVER, "m": DELIVER, "s": SMTP, "p": LIST, "i": NOTHING}
_NOT_HERE = {
    "d": "the server is started by `mqcd run`",
    "D": "the server is started by `mqcd run`",
    "v": "addresses cannot be verified here: `mqcd explain ADDRESS` shows where mail for one goes",
    "t": "there are no rules to test: `mqcd explain ADDRESS` shows where mail for one goes",
}
_RETURNS = ("full", "hdrs")
_NOTIFY = frozenset(("success", "failure", "delay"))
_BODIES = ("7BIT", "8BITMIME")


class BadUsage(Exception):
    """The command line is wrong. Fault: the program that calls."""


@dataclass(kw_only=True, slots=True)
class Asked:
    """What a command line asks for."""

    mode: str = DELIVER
    flush: bool = False
    """-q: try what waits."""
    chosen: dict[str, str] = field(default_factory=dict)
    """-qI, -qR, -qS: of that only this, as flags of `mqcd queue retry`."""
    recipients: list[str] = field(default_factory=list)
    from_header: bool = False
    """-t: recipients stand in the message too."""
    dots: bool = False
    """-i: a line of one dot is content, not the end."""
    sender: str | None = None
    """-f: reverse-path, "" = null; None = the user's own."""
    name: str | None = None
    """-F: the sender's full name; None = the one that the system has."""
    notify: str = ""
    """-N, in the form of NOTIFY (RFC 3461, 4.1)."""
    returned: str = ""
    """-R: FULL or HDRS."""
    envelope_id: str = ""
    """-V"""
    body: str = ""
    """-B"""
    verbose: bool = False
    conf: str = ""
    var: str = ""


def parse(words: Sequence[str]) -> Asked:
    """What these words, without the program's name, ask for. Raises BadUsage."""
    asked = Asked()
    left = iter(words)
    for word in left:
        if word == "--":
            asked.recipients += left
        elif word.startswith("--"):
            _long(asked, word, left)
        elif word.startswith("-") and len(word) > 1:
            _letters(asked, word[1:], left)
        else:
            asked.recipients.append(word)
    return asked


def _long(asked: Asked, word: str, left: Iterator[str]) -> None:
    option, given, value = word.partition("=")
    attribute = _LONG.get(option)
    if attribute is None:
        raise BadUsage(f"unknown option {option}")
    setattr(asked, attribute, value if given else _next(option, left))


def _letters(asked: Asked, letters: str, left: Iterator[str]) -> None:
    for index, letter in enumerate(letters):
        behind = letters[index + 1 :]
        if letter in _ATTACHED:
            _flush(asked, letter, behind)
            return
        if letter in _TAKES_VALUE:
            # An empty value is one: -f "" is the null sender.
            _set(asked, letter, behind or _next(f"-{letter}", left))
            return
        _flag(asked, letter)


def _next(option: str, left: Iterator[str]) -> str:
    value = next(left, None)
    if value is None:
        raise BadUsage(f"option {option} needs a value")
    return value


def _flush(asked: Asked, letter: str, value: str) -> None:
    if letter != "q":
        return
    if value[:1].isdigit():
        raise BadUsage("-q with an interval: the server tries what waits by itself; start it by `mqcd run`")
    asked.flush = True
    letter, text = value[:1], value[1:]
    if letter in _CHOOSES:
        if not text:
            raise BadUsage(f"-q{letter} needs a value behind it")
        flag, part = _CHOOSES[letter]
        asked.chosen[flag] = part.format(text)
    elif value not in ("", "f"):
        raise BadUsage(f"-q{value}: only -q, -qf, -qI, -qR and -qS")


def _flag(asked: Asked, letter: str) -> None:
    match letter:
        case "t":
            asked.from_header = True
        case "i":
            asked.dots = True
        case "v":
            asked.verbose = True
        case _ if letter not in _IGNORED_FLAGS:
            raise BadUsage(f"unknown option -{letter}")


def _set(asked: Asked, letter: str, value: str) -> None:
    if letter in _ATTRIBUTES:
        attribute, read = _ATTRIBUTES[letter]
        setattr(asked, attribute, read(value))
    elif letter == "o":
        asked.dots = asked.dots or value.startswith("i")
    elif letter == "O":
        name, _, setting = value.partition("=")
        asked.dots = asked.dots or (name.strip().lower() == "ignoredots" and _is_yes(setting))


def _is_yes(value: str) -> bool:
    return value.strip().lower()[:1] in ("", "t", "y", "1")


def _path(value: str) -> str:
    return value.removeprefix("<").removesuffix(">") if value.startswith("<") else value


def _mode(value: str) -> str:
    if why := _NOT_HERE.get(value):
        raise BadUsage(f"-b{value}: {why}")
    if value not in _MODES:
        raise BadUsage(f"unknown mode -b{value}")
    return _MODES[value]


def _choice(option: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise BadUsage(f"{option} takes {' or '.join(choices)}, not {value}")
    return value


def _notify(value: str) -> str:
    words = [word.strip().lower() for word in value.split(",")]
    if words == ["never"]:
        return "NEVER"
    if not words or not set(words) <= _NOTIFY:
        raise BadUsage(f"-N takes never, or of success, failure, delay those wanted, not {value}")
    return ",".join(words).upper()


_ATTRIBUTES: dict[str, tuple[str, Callable[[str], str]]] = {
    "b": ("mode", _mode),
    "c": ("conf", str),
    "f": ("sender", _path),
    "r": ("sender", _path),
    "B": ("body", lambda value: _choice("-B", value.upper(), _BODIES)),
    "F": ("name", str),
    "N": ("notify", _notify),
    "R": ("returned", lambda value: _choice("-R", value.lower(), _RETURNS).upper()),
    "V": ("envelope_id", str),
}
"""By letter: what its value sets, and how it is read."""
