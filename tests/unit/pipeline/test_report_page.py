"""The page of a report, without Spark: what it says, and that strangers' words stay words."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.pipeline.report import charts, drawn
from mqcd.pipeline.report.charts import WIDE, Axis, Series
from mqcd.pipeline.report.figures import Coverage, Figures, Listing, Waiting
from mqcd.pipeline.report.page import page
from mqcd.pipeline.report.summary import fields, summary
from mqcd.pipeline.report.templates import macro, visible
from mqcd.pipeline.report.verdict import verdict
from mqcd.pipeline.report.words import duration, number, octets, percent, share, tick
from tests.fakes.figures import T0, account, figures

_ELEMENTS = {
    "html", "head", "meta", "link", "title", "style", "body", "header", "main", "footer", "section", "figure",
    "figcaption", "div", "span", "p", "a", "nav", "h1", "h2", "h3", "dl", "dt", "dd", "ul", "li", "i", "b",
    "strong", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "code", "details", "summary",
    "svg", "path", "rect", "br",
}  # fmt: skip


class Reader(HTMLParser):
    """What a browser would find: elements, attributes, text; and that they are nested as they should be."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def said(self) -> str:
        return "".join(self.text)


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; --></style></title><svg onload=alert(1)>",
    "550 \u202etxt.exe\u202c \u2066\u200b\x00\x1b[31m\r\nX",
    "&lt;b&gt; &amp;",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_strangers_say_is_shown_and_nothing_else(text: str) -> None:
    made = page(figures(text))
    read = Reader(made)
    assert {name for name, _ in read.found} <= _ELEMENTS
    names = {key for _, attributes in read.found for key in attributes}
    assert not [key for key in names if key.startswith("on")]
    links = [value for _, found in read.found for key, value in found.items() if key in ("href", "src")]
    assert all(link and (link.startswith("#") or link == "data:,") for link in links)
    assert text not in made
    assert " ".join(visible(" ".join(text.split())).split())[:40] in " ".join(read.said.split())
    assert all(c.isprintable() or c in "\n\u202f" for c in made)


@given(st.text(max_size=60))
def test_no_text_gets_out_of_its_element(text: str) -> None:
    read = Reader(macro("cells.html", "stranger")(text))
    assert [name for name, _ in read.found] == ["bdi"]
    assert read.said == visible(text)
    cut = Reader(macro("cells.html", "stranger")(text + "..", 1))
    assert cut.found[0][1] == {"title": visible(text + "..")}


def test_the_page_needs_nothing_and_forbids_the_rest() -> None:
    made = page(figures())
    policy = next(a["content"] for _, a in Reader(made).found if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "url(" not in made
    assert "@import" not in made
    assert "http" not in made.replace("http-equiv", "")


def test_tables_and_charts_are_for_readers_that_see_nothing_too() -> None:
    read = Reader(page(figures()))
    for name, attributes in read.found:
        if name == "th":
            assert attributes["scope"] in ("row", "col")
        if name == "svg":
            assert attributes["aria-hidden"] == "true"
    tables = sum(name == "table" for name, _ in read.found)
    assert sum(name == "caption" for name, _ in read.found) == tables
    # Each chart has its numbers beside it.
    assert sum(name == "details" for name, _ in read.found) == sum(name == "figure" for name, _ in read.found)


def test_drawings_are_well_formed_and_inside_their_frame() -> None:
    made = page(figures())
    drawings = [piece.partition("</svg>")[0] for piece in made.split("<svg")[1:]]
    assert len(drawings) == 5
    for drawing in drawings:
        root = ElementTree.fromstring(f"<svg{drawing}</svg>")
        for path in root.iter("path"):
            numbers = [float(n) for n in path.attrib["d"].replace("Z", "").translate(_AS_SPACE).split()]
            assert all(0 <= number <= WIDE for number in numbers)


_AS_SPACE = str.maketrans("MLHVh", "     ")


def test_no_events_give_a_page_that_says_so() -> None:
    empty = Figures(coverage=Coverage(made=T0))
    said = Reader(page(empty)).said
    assert "Nothing to report yet" in said
    assert "<svg" not in page(empty)
    assert summary(empty)[-1].endswith(" no event yet.")
    assert fields(empty)["since"] is None


def test_a_period_without_an_attempt_is_drawn_too() -> None:
    none: Listing[Any] = Listing()
    bare = replace(figures(), worst=(), classes=(), sites=none, replies=none, senders=none, waiting=())
    said = Reader(page(bare)).said
    assert "Every attempt was a delivery." in said
    assert "No recipient waited" in said


def test_others_are_what_is_left_of_all() -> None:
    read = page(figures())
    row = read.partition('class="rest"')[2].partition("</tr>")[0]
    cells = [cell.partition("</td>")[0].rpartition(">")[2] for cell in row.split("<td")[1:3]]
    assert "2 others" in row
    # 100 and 90 of all, less 60 and 57 of the one site that is shown.
    assert cells == ["40", "33"]


def test_it_says_what_is_missing() -> None:
    coverage = replace(
        figures().coverage, gaps=("n1-0-0000000004",), damage=(("not JSON", 3),), waiting_files=2
    )
    said = Reader(page(replace(figures(), coverage=coverage))).said
    assert "No event file n1-0-0000000004" in said
    assert "(table damaged): not JSON (3)" in said
    assert "2 closed event files" in said
    assert "Nothing else is" in Reader(page(figures())).said


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({}, "good", "All 100 recipients ever accepted are accounted for"),
        ({"imbalance": 2, "missing": ["A/1", "B/1"]}, "bad", "2 recipients are not accounted for"),
        ({"imbalance": 1, "excess": ["A/1"]}, "bad", "1 recipient is not accounted for"),
        ({"quarantined": 1, "queued": 4}, "warn", "All 100 recipients"),
        ({"unread": 3}, "warn", "All 100 recipients"),
        ({"doubled": 3}, "warn", "All 100 recipients"),
        ({"accepted": 0}, "good", "Nothing was accepted"),
    ],
)
def test_the_verdict_in_words(changed: dict[str, Any], kind: str, words: str) -> None:
    found = verdict(replace(figures(), account=account(**changed), stuck=Listing()))
    assert (found.kind, found.title.startswith(words)) == (kind, True)
    ids = [*changed.get("missing", ()), *changed.get("excess", ())]
    assert all(name in found.said for name in ids)


def test_who_is_stuck_is_reported_at_once() -> None:
    assert verdict(figures()).kind == "warn"
    assert "30 recipients are stuck." in verdict(figures()).said


def test_without_an_account_it_says_why() -> None:
    bare = replace(figures(), account=None)
    found = verdict(replace(bare, coverage=replace(bare.coverage, unasked="there is no queue")))
    assert found.kind == "warn"
    assert "there is no queue" in found.said


@given(st.floats(0, 1e12))
def test_an_axis_holds_its_greatest_value(most: float) -> None:
    scale = charts.linear(most)
    values = [value for value, _ in scale.ticks]
    assert 0 <= scale.place(most) <= 1
    assert 2 <= len(values) <= 6
    assert values[0] == 0
    assert scale.place(values[-1]) == pytest.approx(1)


@given(st.integers(0, 10**10), st.integers(0, 10**10))
def test_an_axis_of_durations_holds_both_ends(one: int, other: int) -> None:
    scale = charts.durations(min(one, other), max(one, other))
    assert 0 <= scale.place(one) <= 1
    assert len(scale.ticks) >= 2
    assert scale.place(scale.ticks[0][0]) == 0


def test_a_line_breaks_where_nothing_is_known() -> None:
    series = Series(name="x", colour="a", values=[1, None, 3, 4])
    made = charts.lines(
        [series], Axis(moments=range(0, 4000, 1000), width=1000), charts.linear(4), shown=percent
    )
    assert 'd="M125 75h0M625 25h0L875 0"' in made
    assert "1 Jan, 00:00:02\nx: 3" in made


def test_the_last_hour_has_its_own_time_where_moments_are_longer() -> None:
    hours = (1_795_042_800_000, 1_795_064_400_000, 1_795_086_000_000 - 3 * 3_600_000)
    waiting = tuple(Waiting(at=at, recipients={"0-5m": 3}) for at in hours)
    made = drawn.queue_age(replace(figures(), width=6 * 3_600_000, waiting=waiting))
    (pointers, table) = made.split("</svg>")
    for told in (pointers, table):
        assert [time in told for time in ("23:00", "05:00", "08:00", "11:00")] == [True, True, True, False]


def test_a_site_that_is_not_known_is_said_to_be() -> None:
    troubled = figures().troubled
    unknown = replace(troubled, rows=(replace(troubled.rows[0], site=""),))
    assert summary(replace(figures(), troubled=unknown))[-1].startswith("needs attention: not known, 7 of 10")


def test_words() -> None:
    assert [duration(ms) for ms in (None, 0, 999, 4_100, 59_000, 3_900_000, 90_000_000)] == [
        "\u2013", "0 ms", "999 ms", "4.1 s", "59 s", "1 h 5 min", "1 d 1 h",
    ]  # fmt: skip
    assert [share(*pair) for pair in ((0, 0), (0, 9), (9, 9), (1, 5_000), (9_999, 10_000))] == [
        "\u2013", "0 %", "100 %", "< 0.1 %", "> 99.9 %",
    ]  # fmt: skip
    assert (octets(5), octets(3 << 20), octets(1023 << 10)) == ("5 B", "3.0 MB", "1\u202f023 KB")
    assert (number(2_500_000), percent(1), percent(0.1234)) == ("2\u202f500\u202f000", "100 %", "12.3 %")
    assert tick(0, 3_600_000) == "1 Jan"
