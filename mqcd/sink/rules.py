"""The sink's rules: `PATTERN=ACTION`, parsed and matched.

A rule's PATTERN is a shell pattern (`*`, `?`, `[abc]`) over the recipient's address, compared
without regard to case. The first rule that matches a recipient wins; a recipient that no rule
matches is accepted. ACTION is one of

    accept           250, as without a rule
    450 text         refuse the recipient at RCPT; any 4xx or 5xx code, the text as it is to be
                     sent, with an enhanced status code in front or not; 421 also closes
    stall:STAGE      say nothing more from STAGE on, and keep the connection
    drop:STAGE       close the connection at STAGE without a reply
    slow:MS          accept, but wait MS milliseconds before each reply
    garbage:STAGE    answer STAGE with octets that are no reply, then as stall
    endless:STAGE    answer STAGE with a reply that has always one line more, as fast as it is read
    reply:STAGE:250 text   answer STAGE with this line, any code from 200 to 599, and do nothing else: the
                     command has no effect, a message is not kept; 421 also closes
    drip:STAGE:MS    accept, but send the reply to STAGE octet by octet, MS milliseconds apart

STAGE is one of connect, ehlo, mail, rcpt, data, dot. In the first three no recipient is known,
so only a rule whose pattern is `*` can act there, and any other is an error. `slow` with the
pattern `*` also delays the replies that concern no recipient.

Pure: no IO. Fails only with RuleError, which quotes the rule and says what would be right.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from fnmatch import translate

from mqcd.core.value import value

EVERYONE = "*"
MAX_WAIT_MS = 3_600_000
# RFC 5321, 4.5.3.1.5: a reply line has at most 512 octets, CRLF included.
_MAX_REPLY = 510

_RULE = re.compile(
    r"(?P<pattern>.+?)=(?P<action>accept|(?:stall|drop|slow|garbage|endless|reply|drip):.*"
    r"|[45][0-9]{2}(?: .*)?)",
    re.DOTALL,
)
_STATUS = re.compile(r"[0-9]{3} (?P<class>[0-9])\.[0-9]{1,3}\.[0-9]{1,3}(?: |$)")
_ANY_REPLY = re.compile(r"[2-5][0-9]{2} .*", re.DOTALL)
_WAIT = re.compile(r"[0-9]{1,9}")


class RuleError(ValueError):
    """A rule that cannot be understood; the text quotes it and says what was expected."""


class Stage(Enum):
    """A point of the dialogue at which the sink can misbehave, in order of time."""

    CONNECT = "connect"
    EHLO = "ehlo"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    DOT = "dot"


_BEFORE_RECIPIENT = frozenset({Stage.CONNECT, Stage.EHLO, Stage.MAIL})


@value
class Accept:
    """Accept, `wait_ms` milliseconds after the command (0 = at once)."""

    wait_ms: int = 0


@value
class Refuse:
    """Refuse the recipient with this whole reply line (without CRLF)."""

    reply: str

    @property
    def code(self) -> int:
        """The SMTP reply code, 400 to 599."""
        return int(self.reply[:3])


@value
class AtStage:
    """An action at one stage."""

    stage: Stage


class Stall(AtStage):
    """Fall silent, the connection kept open."""

    __slots__ = ()


class Drop(AtStage):
    """Close the connection, without a reply."""

    __slots__ = ()


class Garbage(AtStage):
    """Answer with what is no reply, then fall silent."""

    __slots__ = ()


class Endless(AtStage):
    """Answer with a reply that does not end."""

    __slots__ = ()


@value
class Answer(AtStage):
    """Answer with this whole line (without CRLF), and do nothing else."""

    reply: str

    @property
    def code(self) -> int:
        """The SMTP reply code, 200 to 599."""
        return int(self.reply[:3])


@value
class Drip(AtStage):
    """Answer as is due, but octet by octet, `wait_ms` milliseconds apart."""

    wait_ms: int


Fault = Stall | Drop | Garbage | Endless | Answer | Drip
"""All actions at one stage."""
Action = Accept | Refuse | Fault
_AT_STAGE: Mapping[str, type[Stall | Drop | Garbage | Endless]] = {
    "stall": Stall,
    "drop": Drop,
    "garbage": Garbage,
    "endless": Endless,
}
_WORDS = frozenset({*_AT_STAGE, "slow", "reply", "drip"})
ACCEPT = Accept()


@value
class Rule:
    """One rule: the pattern as written and what is done to the recipients that match it."""

    pattern: str
    action: Action


class Rules:
    """Rules in their order, ready to be matched. Immutable."""

    __slots__ = ("_matchers", "_rules", "for_everyone")

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._matchers = tuple(
            (re.compile(translate(rule.pattern.lower())).match, rule.action) for rule in self._rules
        )
        # What governs replies that concern no recipient: the first rule with the pattern `*`.
        self.for_everyone: Action = next(
            (rule.action for rule in self._rules if rule.pattern == EVERYONE), ACCEPT
        )

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Rules":
        """Rules from texts of the form `PATTERN=ACTION`; RuleError names the first bad one."""
        return cls(parse_rule(text) for text in texts)

    def for_recipient(self, address: str) -> Action:
        """What the first rule that matches this address says; ACCEPT when none does."""
        if not self._matchers:
            return ACCEPT
        folded = address.lower()
        for match, action in self._matchers:
            if match(folded):
                return action
        return ACCEPT


def at_work(action: Action) -> tuple[tuple[Fault, ...], int]:
    """What a recipient's rule does beyond RCPT: its fault, if it is one, and its wait."""
    if isinstance(action, AtStage):
        return (action,), 0
    return (), action.wait_ms if isinstance(action, Accept) else 0


def parse_rule(text: str) -> Rule:
    """One rule from `PATTERN=ACTION`.

    A pattern may itself contain `=`: the action begins after the first `=` that an action
    follows. Raises RuleError.
    """
    found = _RULE.fullmatch(text)
    if found is None:
        raise RuleError(
            f"rule {text!r}: expected PATTERN=ACTION, where ACTION is accept, a reply such as "
            "'450 try later' or '550 5.1.1 no such user', stall:STAGE, drop:STAGE, slow:MS, garbage:STAGE, "
            "endless:STAGE, 'reply:STAGE:250 text' or drip:STAGE:MS"
        )
    pattern, action = found["pattern"], _parse_action(text, found["action"])
    if isinstance(action, AtStage) and pattern != EVERYONE:
        stage = action.stage
        if stage in _BEFORE_RECIPIENT:
            raise RuleError(
                f"rule {text!r}: at the stage {stage.value} no recipient is known yet, so only "
                f"the pattern * can match: write '{EVERYONE}={found['action']}', or use one of "
                "the stages rcpt, data, dot"
            )
    return Rule(pattern=pattern, action=action)


def _parse_action(rule: str, text: str) -> Action:
    word, colon, rest = text.partition(":")
    if text == "accept":
        return ACCEPT
    if not colon or word not in _WORDS:
        return Refuse(reply=_parse_reply(rule, text))
    if word == "slow":
        return Accept(wait_ms=_parse_wait(rule, rest, "slow:250"))
    place, _, more = rest.partition(":")
    if word == "reply":
        return Answer(stage=_parse_stage(rule, place), reply=_parse_answer(rule, more))
    if word == "drip":
        stage = _parse_stage(rule, place)
        return Drip(stage=stage, wait_ms=_parse_wait(rule, more, f"drip:{place}:250"))
    return _AT_STAGE[word](stage=_parse_stage(rule, rest))


def _parse_stage(rule: str, text: str) -> Stage:
    try:
        return Stage(text)
    except ValueError:
        known = ", ".join(stage.value for stage in Stage)
        raise RuleError(f"rule {rule!r}: no stage {text!r}; the stages are {known}") from None


def _parse_wait(rule: str, text: str, example: str) -> int:
    if not _WAIT.fullmatch(text) or int(text) > MAX_WAIT_MS:
        word = example.partition(":")[0]
        raise RuleError(f"rule {rule!r}: {word} takes milliseconds, 0 to {MAX_WAIT_MS}, as in {example}")
    return int(text)


def _parse_answer(rule: str, text: str) -> str:
    if not _ANY_REPLY.fullmatch(text):
        raise RuleError(
            f"rule {rule!r}: reply takes a stage and a reply line, as in 'reply:mail:354 go ahead'"
        )
    # That status and code agree is not asked here: wrong replies are what this is for.
    return _parse_line(rule, text)


def _parse_reply(rule: str, text: str) -> str:
    reply = text.rstrip(" ")
    if len(reply) == 3:
        reply += " Refused by rule"
    reply = _parse_line(rule, reply)
    status = _STATUS.match(reply)
    if status and status["class"] != reply[0]:
        raise RuleError(
            f"rule {rule!r}: the enhanced status code of a {reply[0]}xx reply begins with "
            f"{reply[0]} (RFC 2034, section 4)"
        )
    return reply


def _parse_line(rule: str, reply: str) -> str:
    if not reply.isprintable():
        raise RuleError(f"rule {rule!r}: a reply is one line without control characters")
    if len(reply.encode("utf-8", "surrogateescape")) > _MAX_REPLY:
        raise RuleError(f"rule {rule!r}: a reply has at most {_MAX_REPLY} octets")
    return reply
