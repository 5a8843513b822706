"""The page in a browser, over 20,000 recipients: every action by clicks, and what nobody may do."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeServer
from tests.e2e.kit import mail
from tests.e2e.kit.browser import DOWN, ENTER, TAB, Browser, browser
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.receivers import LoopThread, Receiver
from tests.e2e.kit.server import Server
from tests.e2e.kit.waiting import DEADLINE, poll

pytestmark = [pytest.mark.needs("chromium", "chromedriver"), pytest.mark.slow, pytest.mark.timeout(600)]

ACTIONS = ("hold", "remove", "bounce", "redirect", "reschedule", "retry", "picked")
EACH = 250
"""Recipients of each domain: one domain for each action, and one that is only looked at."""
BULK = 18
"""Thousands of recipients whose next hop is dead."""
HOSTILE = "<script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1>"
PAGES = (
    "/", "/destinations", "/queue", "/queue?where=domain+%3D+seen.test", "/queue?where=domain+%3D",
    "/act?action=bounce&scope=all&where=domain+%3D+seen.test", "/act?action=redirect&scope=all", "/batches",
    "/rules", "/advice", "/events", "/events/trace", "/server", "/settings",
)  # fmt: skip


@pytest.fixture(scope="module")
def server(make_module_server: MakeServer, loop_thread: LoopThread) -> Iterator[Server]:
    """Its next hops defer everything, or are dead."""
    busy = Receiver(loop_thread, ("*=450 4.7.1 busy",), "127.0.0.1", 0)
    queue = {"retry_delays": "1h", "grace": "1h"}
    plan = Plan(
        relays=(("bulk.test", "127.0.0.1:1"), ("", f"127.0.0.1:{busy.port}")),
        queue=queue,
        journal={"segmentsize": "16M"},
        ops='<page port="0"/>',
    )
    server = make_module_server(plan).start()
    server.event("listening", name="page")
    with smtplib.SMTP("127.0.0.1", server.port, timeout=DEADLINE) as client:
        for domain in (*ACTIONS, "seen"):
            to = [f"r{number}@{domain}.test" for number in range(EACH)]
            client.sendmail(f"from@{domain}.test", to, f"Subject: {HOSTILE}\r\nX-{domain}: y\r\n\r\nbody\r\n")
        client.sendmail(
            '"<img src=x onerror=window.pwned=1>"@x.test', ["one@hostile.test"], f"{HOSTILE}: x\r\n\r\n"
        )
    with mail.Client(server.port) as client:
        client.greet()
        for number in range(BULK):
            poll(partial(at_once, client, number), "room in the queue")
    poll(lambda: settled(server.metrics()), "each domain's first attempt")
    yield server
    busy.close()


def at_once(client: mail.Client, number: int) -> bool:
    """A message to a thousand recipients, all RCPT in a row; False if the queue has no room for it now."""
    if not client.ask("MAIL FROM:<from@bulk.test>").startswith("250"):
        return False
    to = b"".join(b"RCPT TO:<r%d@bulk.test>\r\n" % (number * 1000 + each) for each in range(1000))
    client.send(to + b"DATA\r\n")
    assert {client.reply()[:3] for _ in range(1000)} == {"250"}
    if not client.reply().startswith("354"):
        client.ask("RSET")
        return False
    client.send(b"Subject: bulk\r\n\r\nbody\r\n.\r\n")
    return client.reply().startswith("250")


def settled(figures: dict[str, float]) -> bool:
    """Whether all are there, and those of a next hop that answers have been tried."""
    small = EACH * (len(ACTIONS) + 1) + 1
    areas = [figures.get(f"mqcd_queue_recipients{{{name}}}", 0) for name in ("incoming", "deferred")]
    return sum(areas) == small + 1000 * BULK and figures["mqcd_recipients_deferred_total"] >= small


@pytest.fixture(scope="module")
def page(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Logged in by a token that may operate."""
    token = server.command("token", "add", "operator", "--role", "operate").strip()
    origin = f"http://127.0.0.1:{server.ports['page']}"
    with browser(origin, tmp_path_factory.mktemp("profile")) as window:
        window.looks(dark=False, width=1280)
        window.go("/")
        window.fill("token", token)
        window.click("Log in")
        window.reads("What needs attention")
        yield window


@pytest.mark.parametrize(
    ("action", "verb", "done", "fields"),
    [
        ("hold", "Hold", "held", {}),
        ("remove", "Remove", "removed", {}),
        ("bounce", "Bounce", "bounced", {}),
        ("redirect", "Redirect", "redirected", {"target": "127.0.0.1:2"}),
        ("reschedule", "Reschedule", "rescheduled", {"delay": "30m"}),
    ],
)
def test_an_action_is_counted_done_and_undone(
    page: Browser, server: Server, action: str, verb: str, done: str, fields: dict[str, str]
) -> None:
    page.go(f"/queue?where=domain+%3D+{action}.test")
    page.reads(f"{EACH} recipients match")
    page.one("input[name=scope][value=all]").click()
    page.click(verb)
    page.reads(f"{EACH} recipients")
    page.reads(f"@{action}.test")
    for name, text in fields.items():
        page.fill(name, text)
    page.fill("reason", "a test of it")
    page.click(verb)
    page.reads(f"{EACH} recipients are {done}")
    event = server.event(action)
    assert (event["by"], event["reason"], event["changed"]) == ("token:operator", "a test of it", EACH)
    page.click("Undo")
    page.reads(f"{EACH} recipients are restored")


def reads_most(page: Browser, words: str) -> None:
    """Of the flood at most one is in flight: it is a probe of the next hop, which answers nobody."""
    counts = (f"{1000 * BULK - probes:,}" for probes in range(2))
    wanted = [f"{count} recipients{words}" for count in counts]
    page.until(lambda: any(each in page.text for each in wanted), f"one of {wanted}")


def test_a_flood_is_held_and_undone(page: Browser, server: Server) -> None:
    page.go("/queue?where=domain+%3D+bulk.test")
    page.reads(f"{BULK},000 recipients match")
    page.one("input[name=scope][value=all]").click()
    page.click("Hold")
    reads_most(page, "")
    page.click("Hold")
    reads_most(page, " are held")
    page.click("Undo")
    reads_most(page, " are restored")


def test_held_mail_is_released(page: Browser, server: Server) -> None:
    for verb, done in (("Hold", "held"), ("Release", "released")):
        page.go("/queue?where=domain+%3D+hold.test")
        page.one("input[name=scope][value=all]").click()
        page.click(verb)
        page.reads(f"{EACH} recipients")
        page.click(verb)
        page.reads(f"{EACH} recipients are {done}")
    server.event("release", changed=EACH)


def test_mail_is_tried_now(page: Browser, server: Server) -> None:
    page.go("/queue?where=domain+%3D+retry.test")
    page.one("input[name=scope][value=all]").click()
    page.click("Try now")
    page.reads(f"{EACH} recipients")
    page.click("Try now")
    page.reads(f"{EACH} recipients are due now")
    server.event("retry", changed=EACH)


def test_only_the_checked_rows_change(page: Browser, server: Server) -> None:
    page.go("/queue?where=domain+%3D+picked.test")
    for box in page.driver.find_elements("css selector", "input[name=pick]")[:3]:
        page.run("arguments[0].click()", box)
    page.click("Hold")
    page.reads("3 recipients")
    page.click("Hold")
    page.reads("3 recipients are held")
    assert server.event("hold", changed=3)


def test_a_list_goes_on_page_by_page(page: Browser) -> None:
    # In the store's order a record that moves meanwhile may come twice.
    page.go("/queue?where=domain+%3D+seen.test&sort=age")
    seen: set[str] = set()
    for _ in range(EACH // 50):
        rows = [each.text for each in page.driver.find_elements("css selector", "th.address a")]
        assert seen.isdisjoint(rows)
        seen.update(rows)
        if len(seen) < EACH:
            page.click("Next page")
    assert len(seen) == EACH


def test_a_message_is_shown_and_acted_on(page: Browser) -> None:
    page.go("/queue?where=domain+%3D+hostile.test")
    page.click("one@hostile.test")
    page.reads("Why it waits")
    page.click("Hold")
    page.reads("1 recipient")
    page.click("Hold")
    page.reads("1 recipient is held")
    page.click("Undo")
    page.reads("1 recipient is restored")


def test_a_destination_is_suspended_and_resumed(page: Browser, server: Server) -> None:
    page.go("/destinations")
    page.click("Suspend")
    page.fill("reason", "its owner asked")
    page.click("Suspend")
    page.reads("suspended")
    page.click("Resume")
    page.go("/rules")
    page.reads("No rule stands")


def test_a_rule_is_counted_added_and_cancelled(page: Browser) -> None:
    page.go("/rules")
    page.one("input[name=action][value=slow]").click()
    page.fill("where", "domain = seen.test")
    page.fill("rate", "1/s")
    page.click("Count first")
    page.reads(f"{EACH} recipients")
    page.reads("No rule stands")
    page.click("Add the rule")
    page.reads("domain = seen.test")
    page.click("Cancel")
    page.reads("No rule stands")


def test_the_box_completes_conditions(page: Browser) -> None:
    page.go("/queue")
    box = page.one("#where")
    for typed, offered in (("dom", "domain"), ("", "=")):
        box.send_keys(typed)
        page.offers(offered)
        box.send_keys(DOWN, ENTER)
    box.send_keys("hold.test ")
    page.offers("and")
    assert box.get_attribute("value") == "domain = hold.test "
    box.send_keys(ENTER)
    page.settle()
    page.reads(f"{EACH} recipients match")


def test_a_wrong_condition_is_marked_at_its_place(page: Browser) -> None:
    page.go("/queue")
    page.fill("where", "domain = x and agee > 1h")
    page.one("#where").send_keys(ENTER)
    page.reads("At column 16")
    assert page.run("return document.activeElement.id + document.activeElement.selectionStart") == "where15"


def test_refreshing_leaves_the_focus(page: Browser) -> None:
    page.go("/")
    page.run(
        "document.getElementById('area-deferred').focus();"
        "document.addEventListener('htmx:afterSettle', () => { window.refreshed = true; })"
    )
    page.until(lambda: page.run("return window.refreshed"), "a refresh")
    assert page.run("return document.activeElement.id") == "area-deferred"


def test_the_keyboard_reaches_the_content_first(page: Browser) -> None:
    page.go("/queue")
    page.type(TAB)
    assert page.run("return document.activeElement.className") == "skip"
    page.type(ENTER)
    assert page.run("return document.activeElement.id") == "main"


@pytest.mark.parametrize("dark", [False, True])
def test_pages_are_accessible_and_fit(page: Browser, dark: bool) -> None:
    try:
        for path in PAGES:
            page.looks(dark=dark, width=1280 if dark else 400)
            page.go(path)
            assert page.violations() == [], path
            assert page.run("return document.documentElement.scrollWidth") <= (1280 if dark else 400), path
    finally:
        page.looks(dark=False, width=1280)


def test_nothing_in_mail_runs(page: Browser) -> None:
    page.complaints()
    for path in ("/queue?where=domain+%3D+hostile.test", "/queue?where=domain+%3D+seen.test", "/"):
        page.go(path)
        assert page.run("return window.pwned") is None
    # In the store's order any recipient may be the first: attempts end as they end, and records move.
    page.go("/queue?where=recipient+%3D+r0@seen.test")
    page.click("r0@seen.test")
    page.reads("<script>window.pwned=1</script>")
    page.reads("Subject")
    assert page.run("return window.pwned") is None
    assert page.complaints() == []


def test_the_policy_stops_what_escaping_might_miss(page: Browser) -> None:
    page.go("/")
    page.run(
        "const made = document.createElement('div'); made.innerHTML = '<img src=x onerror=window.pwned=1>';"
        "const script = document.createElement('script'); script.textContent = 'window.pwned = 1';"
        "document.body.append(made, script);"
    )
    page.until(lambda: any("Content Security Policy" in each for each in page.complaints()), "a refusal")
    assert page.run("return window.pwned") is None


def test_who_may_only_read_sees_no_buttons(page: Browser, server: Server, tmp_path: Path) -> None:
    token = server.command("token", "add", "reader", "--role", "read").strip()
    with browser(page.origin, tmp_path) as window:
        window.go("/")
        window.fill("token", token)
        window.click("Log in")
        for path in ("/queue?where=domain+%3D+seen.test", "/rules", "/destinations", "/server"):
            window.go(path)
            buttons = {each.text for each in window.driver.find_elements("css selector", "main button")}
            assert buttons <= {"Show"}, path


def test_accepting_is_paused_and_resumed(page: Browser, server: Server) -> None:
    page.go("/server")
    page.fill("reason", "a look at accepting")
    page.click("Pause accept")
    page.reads("a look at accepting")
    assert server.page("/readyz")[0] == 503
    page.click("Resume accept")
    page.reads("Ready.")


def test_events_are_followed_live(page: Browser, server: Server) -> None:
    page.go("/events?verb=accepted&domain=live.test")
    page.reads("Following.")
    mail.send(server.port, mail.message("live"), ["one@live.test", "two@other.test"])
    page.reads("one@live.test")
    assert "two@other.test" not in page.text


def test_a_trace_is_followed_live(page: Browser, server: Server) -> None:
    page.go("/events/trace")
    page.fill("q", "traced@live.test")
    page.click("Trace")
    page.reads("Following.")
    mail.send(server.port, mail.message("is not shown"), "traced@live.test")
    page.reads("TO:<traced@live.test>")
    page.reads("octets")
    assert "is not shown" not in page.text
