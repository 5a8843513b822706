"""Files that attack, or have many faults: the answer comes soon, is short, and says no nonsense."""

from __future__ import annotations

import time

import pytest

from mqcd.config.blocks import bare
from mqcd.config.problems import MOST
from mqcd.config.show import as_xml
from tests.unit.config.samples import document, errors, loaded

MANY = 100_000
_DESTINATIONS = "mta/deliver/destinations"


@pytest.mark.parametrize(
    "text",
    [
        document("mta/queue", "", "".join(f' b{number}="1"' for number in range(MANY))),
        document("mta/queue", "".join(f"<b{number}/>" for number in range(MANY))),
        document("mta/queue", "<minfree>1</minfree>" * MANY),
        document(_DESTINATIONS, "".join(f'<destination b="{number}"/>' for number in range(MANY))),
    ],
    ids=["attributes", "elements", "repeated", "list"],
)
def test_many_errors_are_found_soon_and_reported_in_part(text: str) -> None:
    begun = time.process_time()
    found = errors(text)
    # A second of a processor that has nothing else to do.
    assert time.process_time() - begun < 3
    assert 0 < len(found) <= MOST


def test_warnings_beyond_the_most_are_counted() -> None:
    warnings = loaded(document("mta/submit/listeners", "<listener/>" * 1)).warnings
    assert len(warnings) < MOST
    listeners = "".join(f'<listener name="l{number}" port="{number + 1}"/>' for number in range(500))
    warnings = loaded(document("mta/submit/listeners", listeners)).warnings
    assert len(warnings) == MOST + 1
    assert "more warnings" in warnings[-1].text


def test_a_long_value_is_cut_in_its_error() -> None:
    (error,) = errors(document("mta/queue/minfree", "1" * 1_000_000))
    assert len(str(error)) < 600


def test_what_is_read_over_is_not_said_to_be_expected() -> None:
    (error,) = errors(document("mta/queue", "", ' colour="red"'))
    assert "expected one of" not in error.text
    (error,) = errors(document("mta/queue", "<colour/>"))
    assert "minfree" in error.text
    assert "deferred_maxignore" not in error.text


RELAYS = """<mailserver><mta><deliver><relays>
  <relay address="smart.example.net"/>
  <relay address="other.example.net" {slip}/>
</relays></deliver></mta></mailserver>"""


@pytest.mark.parametrize("slip", ['destdomains="a..b"', 'destdomain="a.example"', 'senders="@@"'])
def test_a_relay_with_a_slip_is_no_second_default(slip: str) -> None:
    assert ["relay" in bare(error.path) for error in errors(RELAYS.format(slip=slip))] == [True]
    both = RELAYS.format(slip="")
    assert [error.path for error in errors(both)] == ["mta/deliver/relays/relay[2]"]


@pytest.mark.parametrize(
    ("around", "items", "wrong"),
    [
        ("mta/submit/listeners", '<listener port="25"/><listener name="b" port="x"/>', "listener[2]@port"),
        ("mta/submit/listeners", '<listener/><listener name="b c" port="26"/>', "listener[2]@name"),
        ("mta/deliver/zones", '<zone name="a b"/><zone name="c d"/>', "zone[1]@name zone[2]@name"),
        ("mta/deliver/destinations", '<destination match=".."/>' * 2,
         "destination[1]@match destination[2]@match"),
    ],
)  # fmt: skip
def test_no_error_follows_from_a_value_that_did_not_parse(around: str, items: str, wrong: str) -> None:
    assert [error.path for error in errors(document(around, items))] == [
        f"{around}/{name}" for name in wrong.split()
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("mta/submit/listeners/listener/server/relay_clients", "192.0.2.1, 10.0.0.0/8"),
        ("mta/submit/listeners/listener/server/relay_domains", "a.example, b.example"),
        ("mta/queue/retry_delays", "15m, 30m"),
        ("mta/report/ndr_recips_additional", "a@a.example, b@b.example"),
        ("mta/deliver/zones/zone@sources", "192.0.2.1, 192.0.2.2"),
    ],
)
def test_a_comma_where_a_bar_is_meant_is_named(path: str, text: str) -> None:
    (error,) = errors(document(path, text))
    assert '"|" between values' in error.text


def test_a_bar_where_a_comma_is_meant_is_named() -> None:
    (error,) = errors(document("mta/deliver/relays/relay@destdomains", "a.example | b.example"))
    assert '"," between values' in error.text


@pytest.mark.parametrize(
    "path",
    [
        "application/announcehost",
        "mta/submit/listeners/listener/server/announcehost",
        "mta/deliver/client/announcehost",
        "mta/deliver/zones/zone@helo",
        "mta/report/announcemta",
        "mta/report/ndr_from",
        "mta/report/ndr_subject",
        "mta/report/ndr_textpart",
        "mta/submit/listeners/listener/server/smtpgreet",
        "ops/node",
    ],
)
@pytest.mark.parametrize("control", ["&#13;X", "\x85", "\u2028", "\u202e", "&#127;"])
def test_control_characters_are_refused_in_what_reaches_others(path: str, control: str) -> None:
    good = "a@b.example" if path.endswith("ndr_from") else "b.example"
    assert errors(document(path, good)) == ()
    bad = document(path, f"{good}{control}{good}")
    # In a line, white space between words is one blank, line ends among it.
    assert errors(bad) or not set("\r\x7f\x85\u2028\u202e") & set(as_xml(loaded(bad).settings))
