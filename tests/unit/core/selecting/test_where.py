"""Conditions: what they select, how they are written, and which are refused and where."""

from __future__ import annotations

import pickle
from contextlib import suppress
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area, Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import DEEPEST, All, AnyOf, Compare, Node, Not, Where, parse_where
from mqcd.core.selecting.where_fields import FIELDS, IN
from mqcd.core.smtp.classes import OutcomeClass
from mqcd.core.smtp.marks import Marks
from mqcd.queue.format import record
from mqcd.queue.format.choosing import chooser
from tests.fakes.clock import START_MS
from tests.unit.queue.support import SPID, addresses, recipient, recipients, texts

NOW = START_MS
HOUR = 3_600_000
LABELLED = {"labels": Marks("<a@b.example>", "", "spring sale").labels("Acme")}
FRESH = {"code": 0, "status": "", "reply": "", "attempts": 0, "due": 0, "area": Area.INCOMING}


def selects(text: str, **changes: Any) -> bool:
    return parse_where(text, NOW).matches(recipient(**changes))


# Of `recipient`: from sender@example.com to someone@example.org, 5 s old, due now, 450 4.2.1, two attempts.
@pytest.mark.parametrize(
    "text",
    [
        f"spid = {SPID:016X}",
        f"spid = {SPID:016x}",
        "sender = Sender@EXAMPLE.com",
        "SENDER != other@example.com",
        "sender ~ *@example.com",
        "sender in a@b.example, sender@example.com",
        "sender in (a@b.example, sender@example.com)",
        "recipient=someone@example.org",
        "recipient ~ some*",
        "recipient ~ someone@example.org",
        "domain = Example.ORG.",
        "domain ~ *.org",
        "domain in(example.net,example.org)",
        "area = deferred",
        "area in incoming, DEFERRED",
        "area != held",
        "header-zone = bulk",
        "sender-domain in Example.COM",
        "route = ''",
        "listener = MX",
        "user ~ j??",
        "client = 2001:DB8:0::1",
        "client = 2001:db8::/32",
        "client in 10.0.0.0/8, 2001:db8::1",
        "client != 10.0.0.0/8",
        "client ~ 2001:db8:*",
        "age > 2s",
        "age < 1h30m",
        "due < 10m",
        "not due > 1ms",
        "attempts = 2",
        "attempts > 1",
        "attempts < 3",
        "attempts != 3",
        "attempts in 1, 2",
        "code = 450",
        "code > 399 and code < 500",
        "status = 4.2.1",
        "status ~ 4.*",
        'reply ~ "450 BUSY*"',
        "reply = '450 busy | try 100% later'",
        "class = mailbox",
        "class in policy, Mailbox",
        "size = 4K",
        "size < 1M",
        "size > 4095",
        "not not area = deferred",
        "NOT (area = held OR area = bounces) AND attempts = 2",
        "area = held and area = bounces or attempts = 2",
        "attempts = 2 or area = held and area = bounces",
        "(((attempts = 2)))",
        "\tarea\n=\tdeferred ",
    ],
)
def test_it_selects_what_it_says(text: str) -> None:
    assert selects(text)
    assert not selects(f"not ({text})")


@pytest.mark.parametrize(
    ("text", "changes", "selected"),
    [
        ('sender = ""', {"sender": ""}, True),
        ("sender = <>", {"sender": ""}, True),
        ("sender = <Sender@example.com>", {}, True),
        ("sender ~ <>", {"sender": ""}, True),
        ("sender != <>", {"sender": ""}, False),
        ("domain = bücher.example", {"address": "a@xn--bcher-kva.example"}, True),
        ("domain = [192.0.2.1]", {"address": "a@[192.0.2.1]"}, True),
        ('domain = ""', {"address": "postmaster"}, True),
        ("sender = b+x=y@example.com", {"sender": "b+x=y@example.com"}, True),
        (r"""sender = '"a \\"b"@x.example'""", {"sender": r'"a \"b"@x.example'}, True),
        ("client = ''", {"client": ""}, True),
        ("client = 0.0.0.0/0", {"client": ""}, False),
        ("client = 0.0.0.0/0", {"client": "an import"}, False),
        ("client = 192.0.2.0/24", {"client": "192.0.2.77"}, True),
        ("class = mailbox", FRESH, False),
        ("class = other", FRESH, False),
        ("class != mailbox", FRESH, True),
        ("class = network", {"code": 0, "status": "4.4.1"}, True),
        ("reply = ''", FRESH, True),
        ("code = 0", FRESH, True),
        ("due < 10m", FRESH, True),
        ("due < 10m", {"due": NOW + HOUR}, False),
        ("due > 10m", {"due": NOW + HOUR}, True),
        ("age > 2h", {"received": NOW - 3 * HOUR}, True),
        ("age > 2h", {"received": NOW - 2 * HOUR}, False),
        ("age > 2h", {"received": NOW + HOUR}, False),
        ('tag = "Spring sale"', LABELLED, True),
        ("tag ~ *sale", LABELLED, True),
        ("message-id = <A@b.example>", LABELLED, True),
        ("message-id in a@b.example", LABELLED, True),
        ('message-id ~ "<*@b.example>"', LABELLED, True),
        ("list-id = b.example", LABELLED, False),
        ("list-id = ''", {}, True),
        ("tenant = acme", LABELLED, True),
        ("tenant = mx", LABELLED, False),
        ("tenant = mx", {}, True),
    ],
)
def test_it_selects_the_unusual(text: str, changes: dict[str, Any], selected: bool) -> None:
    assert selects(text, **changes) is selected


@pytest.mark.parametrize(
    ("text", "column", "named"),
    [
        ("", 1, "a field such as domain"),
        ("  ", 3, "a field"),
        ("recipient =", 12, "a value after ="),
        ("domain == x", 9, "a value after ="),
        ("domain = and = x", 14, "and, or, or the end"),
        ("domain x", 8, "=, !=, ~ or in after domain"),
        ("domain < x", 8, "=, !=, ~ or in after domain"),
        ("age = 2h", 5, "< or > after age"),
        ("age > soon", 7, "a time such as 2h or 1h30m after >"),
        ("size > 3T", 8, "a size such as 64K"),
        ("attempts > -1", 12, "a whole number"),
        ("attempts > " + "9" * 5000, 12, "a whole number"),
        ("area = nowhere", 8, "one of incoming, deferred, bounces, held"),
        ("area in held, there", 15, "one of incoming"),
        ("class = polcy", 9, "one of success, address"),
        ("spid = 12", 8, "16 hex digits"),
        ("client = 10.0.0.0/99", 10, "an IP address, or a network"),
        ("colour = red", 1, "a field (spid, sender, "),
        ("area = held and tag < x", 21, "=, !=, ~ or in after tag"),
        ("site = x", 1, "site follows from the configuration"),
        ("zone = x", 1, "zone follows from the configuration"),
        ("domain = a b", 12, "and, or, or the end"),
        ("domain = a and", 15, "a field"),
        ("(domain = a", 12, "and, or, or )"),
        ("domain = a)", 11, "and, or, or the end"),
        ("domain in (a b)", 14, ", or )"),
        ("domain in a,", 13, "a value after in"),
        ("sender = 'a", 10, "a closing quote"),
        ("sender = a'b", 11, "and, or, or the end"),
        ("not " * (DEEPEST + 19) + "area = held", (DEEPEST + 10) * 4 + 1, "deep"),
        ("(" * 9999, DEEPEST + 11, "deep"),
    ],
)
def test_an_error_names_the_column_and_what_was_expected(text: str, column: int, named: str) -> None:
    with pytest.raises(DecodeError) as raised:
        parse_where(text, NOW)
    assert str(raised.value).startswith(f"column {column}: ")
    assert named in str(raised.value)


@given(st.text(st.sampled_from("domain age=!~<>()'\"\\,2h ort")) | texts)
def test_any_text_is_a_condition_or_a_decode_error(text: str) -> None:
    with suppress(DecodeError):
        assert isinstance(parse_where(text, NOW), Where)


VALUES: dict[str, st.SearchStrategy[str]] = {
    "spid": st.integers(0, (1 << 64) - 1).map("{:016X}".format),
    "sender": addresses | texts,
    "recipient": addresses | st.just("*@*.example"),
    "domain": addresses.map(lambda each: each.rpartition("@")[2]),
    "area": st.sampled_from([each.value for each in Area]),
    "client": st.ip_addresses().map(str) | st.ip_addresses(v=4).map("{}/8".format),
    "age": st.sampled_from(["0", "2h", "1w2d", "90m"]),
    "due": st.sampled_from(["0", "2h", "1w2d", "90m"]),
    "attempts": st.integers(0, 1 << 16).map(str),
    "code": st.integers(200, 599).map(str),
    "status": st.sampled_from(["4.2.1", "5.*", ""]),
    "class": st.sampled_from([each.value for each in OutcomeClass]),
    "size": st.sampled_from(["0", "64K", "1G"]),
}


@st.composite
def compares(draw: st.DrawFn) -> Compare:
    name = draw(st.sampled_from([name for name, field in FIELDS.items() if field is not None]))
    field = FIELDS[name]
    assert field is not None
    op = draw(st.sampled_from(field.kind.ops))
    most = 3 if op == IN else 1
    values = draw(st.lists(VALUES.get(name, texts), min_size=1, max_size=most))
    return Compare(name, op, tuple(values))


def _joined(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, parts) | st.builds(All, several) | st.builds(AnyOf, several)


nodes: st.SearchStrategy[Node] = st.recursive(compares(), _joined, max_leaves=6)
wheres = st.builds(Where, nodes, st.integers(0, 1 << 42))


@given(wheres)
def test_its_text_says_all_of_it(where: Where) -> None:
    assert parse_where(str(where), where.now) == where


@given(wheres, recipients)
def test_a_record_is_selected_as_its_recipient(where: Where, given_record: Recipient) -> None:
    chosen = chooser(Selection(where=where))
    assert chosen is not None
    assert chosen(record.verify(record.encode(given_record))) is where.matches(given_record)


@given(wheres, recipients, st.sets(st.sampled_from(list(FIELDS))))
def test_what_is_known_of_a_row_never_hides_a_match(
    where: Where, given_record: Recipient, known: set[str]
) -> None:
    likely = where.on_some(known, attrgetter)
    if where.matches(given_record):
        assert likely is None or likely(given_record)
    if known == set(FIELDS) and likely is not None:
        assert likely(given_record) is where.matches(given_record)


def test_what_is_known_excludes() -> None:
    where = parse_where("not (area = held or sender = a@b.example) and attempts > 2", NOW)
    likely = where.on_some({"area"}, attrgetter)
    assert likely is not None
    assert not likely(recipient(area=Area.HELD))
    assert likely(recipient())
    assert where.on_some({"zone"}, attrgetter) is None
    assert parse_where("area = held or attempts > 2", NOW).on_some({"area"}, attrgetter) is None


def test_it_survives_pickling() -> None:
    where = parse_where("age > 2h or sender = '' and not area in (held, bounces)", NOW)
    assert where.matches(recipient(sender=""))
    copy = pickle.loads(pickle.dumps(where))
    assert copy == where
    assert copy.matches(recipient(sender=""))


def test_a_selection_with_one_is_not_everything() -> None:
    selection = Selection(where=parse_where("area = held", NOW), domain="example.org")
    assert not selection.everything
    assert not Selection(where=selection.where).everything
    assert not selection.matches(recipient())
    assert selection.matches(recipient(area=Area.HELD))
    assert not selection.matches(recipient(area=Area.HELD, address="a@b.example"))


def test_fields_of_a_record_that_cannot_be_are_decode_errors() -> None:
    chosen = chooser(Selection(where=parse_where("attempts > 2", NOW)))
    assert chosen is not None
    text = record.verify(record.encode(recipient(attempts=7)))
    with pytest.raises(DecodeError, match="cannot be"):
        chosen(text.replace("|7|", "|x|"))
