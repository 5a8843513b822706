"""The queue as a library: a relay, a backoff, reports and policies of the program's own."""

from __future__ import annotations

import asyncio
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.content import MemoryContent
from mqcd.core.errors import StoreBusy, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area, Envelope, Recipient, Submission
from mqcd.core.selecting.selection import Selection
from mqcd.embed import Draft, Mail, Queue, Refused, Reply, SmtpRelay, SyncQueue
from mqcd.embed.backoff import LONGEST_MS
from mqcd.net.clock import SystemClock
from mqcd.sink.outputs import Limits, Received
from mqcd.sink.server import SinkSettings, start
from mqcd.stores.backend import Write, failed
from mqcd.stores.mapping import MappingStore
from tests.fakes.clock import FakeClock, turns
from tests.fakes.observer import RecordingObserver

OK = Reply(code=250, status="2.0.0", text="ok")
LATER = Reply(code=450, status="4.2.0", text="later")
NEVER = Reply(code=550, status="5.1.1", text="no such user")
TEXT = b"Subject: a\r\n\r\nbody\r\n"
ME, YOU, THEM = "me@example.org", "you@example.net", "them@example.com"
MINUTE = 60_000


class Relay:
    """Replies as it is told, by recipient, and keeps what it was given."""

    def __init__(self, **replies: Reply | Sequence[Reply]) -> None:
        self.replies: dict[str, Reply] = {}
        self.mails: list[Mail] = []
        self.octets: list[bytes] = []

    async def __call__(self, mail: Mail) -> Sequence[Reply]:
        self.mails.append(mail)
        self.octets.append(await mail.read())
        return [self.replies.get(each, OK) for each in mail.recipients]


class Kit:
    """A queue in memory with a relay, a clock and an observer."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.relay = Relay()
        self.store = MappingStore()

    def queue(self, **wishes: Any) -> Queue:
        wishes = {"clock": self.clock, "observer": self.observer, "hostname": "mx.example.org", **wishes}
        return Queue(self.store, wishes.pop("relay", self.relay), wishes.pop("backoff", None), **wishes)

    async def settled(self, count: int) -> None:
        """Until this many verdicts were recorded."""
        verbs = (Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED, Verb.EXPIRED)
        async with asyncio.timeout(20):
            while len(self.observer.of(*verbs)) < count:
                await asyncio.sleep(0)

    async def reported(self, count: int) -> None:
        """The same while time goes on, as reports wait a moment."""
        verbs = (Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED, Verb.EXPIRED)
        async with asyncio.timeout(20):
            while len(self.observer.of(*verbs)) < count:
                self.clock.advance(100)
                await asyncio.sleep(0)


@pytest.fixture
def kit() -> Kit:
    return Kit()


async def test_a_message_is_relayed_once(kit: Kit) -> None:
    async with kit.queue() as queue:
        names = await queue.enqueue(ME, [YOU, THEM], TEXT)
        await kit.settled(2)
        assert [each async for each in queue.recipients()] == []
    [mail] = kit.relay.mails
    assert (mail.sender, mail.recipients, mail.attempts) == (ME, [YOU, THEM], 0)
    assert kit.relay.octets == [TEXT]
    assert len(names) == 1


async def test_labels_are_those_of_the_header(kit: Kit) -> None:
    kit.relay.replies = {YOU: LATER}
    async with kit.queue(reports=False) as queue:
        await queue.enqueue(ME, [YOU], b"X-mqcd-Tag: news\r\n" + TEXT)
        await kit.settled(1)
        [waits] = [each async for each in queue.recipients()]
        assert waits.envelope.labels == "tag=news"


async def test_a_key_queues_a_message_once(kit: Kit) -> None:
    async def one_each(draft: Draft) -> Sequence[Draft]:
        # As policies may, it adds what differs each time.
        stamp = b"X-Count: %d\r\n" % next(counter)
        return [
            replace(draft, recipients=(each,), content=stamp + draft.content) for each in draft.recipients
        ]

    counter = count()
    async with kit.queue(before_enqueue=[one_each]) as queue:
        names = await queue.enqueue(ME, [YOU, THEM], TEXT, key="k1")
        await kit.settled(2)
        assert await queue.enqueue(ME, [YOU, THEM], TEXT, key="k1") == names
        assert await queue.enqueue(ME, [YOU, THEM], TEXT) != names
        with pytest.raises(Refused):
            await queue.enqueue(ME, [YOU], TEXT, key="k1")
        await kit.settled(4)
    assert len(set(names)) == 2
    assert len(kit.relay.mails) == 4


async def test_replies_are_each_recipients_own(kit: Kit) -> None:
    kit.relay.replies = {YOU: LATER, THEM: NEVER}
    async with kit.queue(reports=False) as queue:
        await queue.enqueue(ME, [ME, YOU, THEM], TEXT)
        await kit.settled(3)
        assert kit.observer.count(Verb.DELIVERED) == 1
        [waits] = [each async for each in queue.recipients(Selection(area=Area.DEFERRED))]
        assert (waits.address, waits.code, waits.attempts) == (YOU, 450, 1)


async def test_the_backoff_says_when(kit: Kit) -> None:
    asked: list[tuple[str, int]] = []

    def backoff(envelope: Envelope, attempts: int) -> float | None:
        asked.append((envelope.sender, attempts))
        return 60.0 * attempts if attempts < 3 else None

    kit.relay.replies = {YOU: LATER}
    async with kit.queue(backoff=backoff, reports=False) as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        for attempts in (1, 2):
            await kit.settled(attempts)
            assert queue.store.next_due() == kit.clock.now() + attempts * MINUTE
            kit.clock.advance(attempts * MINUTE)
        await kit.settled(3)
    assert kit.observer.count(Verb.EXPIRED) == 1
    assert asked == [(ME, 1), (ME, 2), (ME, 3)]


async def test_a_relay_that_fails_is_tried_again(kit: Kit) -> None:
    async def broken(mail: Mail) -> Reply:
        raise RuntimeError("no such service")

    async with kit.queue(relay=broken) as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        await kit.settled(1)
        [waits] = [each async for each in queue.recipients()]
        assert (waits.area, waits.code) == (Area.DEFERRED, 451)


@pytest.mark.parametrize("replied", [None, 250, ["250 ok"], "2", Reply(code=25), Reply(code="250")])  # type: ignore[arg-type]
async def test_what_is_no_reply_is_tried_again(kit: Kit, replied: Any) -> None:
    async def wrong(mail: Mail) -> Any:
        return replied

    async with kit.queue(relay=wrong) as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        await kit.settled(1)
        [waits] = [each async for each in queue.recipients()]
        assert (waits.area, waits.code) == (Area.DEFERRED, 451)


@pytest.mark.parametrize(
    ("seconds", "due"),
    [
        (lambda: 1 / 0, 15 * MINUTE),
        (lambda: math.nan, 15 * MINUTE),
        (lambda: "60", 15 * MINUTE),
        (lambda: math.inf, LONGEST_MS),
    ],
)
async def test_a_backoff_that_fails_strands_no_mail(kit: Kit, seconds: Callable[[], float], due: int) -> None:
    kit.relay.replies = {YOU: LATER}
    async with kit.queue(backoff=lambda envelope, attempts: seconds()) as queue:
        now = kit.clock.now()
        await queue.enqueue(ME, [YOU], TEXT)
        await kit.settled(1)
        assert queue.store.next_due() == now + due


async def test_replies_must_be_as_many_as_recipients(kit: Kit) -> None:
    async def short(mail: Mail) -> Sequence[Reply]:
        return [OK]

    async with kit.queue(relay=short) as queue:
        await queue.enqueue(ME, [YOU, THEM], TEXT)
        await kit.settled(2)
        assert {each.code async for each in queue.recipients()} == {451}


async def test_a_failure_is_reported_to_the_sender(kit: Kit) -> None:
    kit.relay.replies = {YOU: NEVER}
    async with kit.queue() as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        await kit.settled(1)
        await kit.reported(2)
    report = kit.relay.mails[1]
    assert (report.sender, report.recipients) == ("", [ME])
    assert b"no such user" in kit.relay.octets[1]


async def test_the_program_makes_its_own_report(kit: Kit) -> None:
    async def bounce(mail: Mail, failures: Sequence[Recipient]) -> bytes:
        return b"Subject: sorry\r\n\r\n%b %d\r\n" % (await mail.read(), failures[0].code)

    kit.relay.replies = {YOU: NEVER}
    async with kit.queue(bounce=bounce) as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        await kit.settled(1)
        await kit.reported(2)
    assert kit.relay.octets[1] == b"Subject: sorry\r\n\r\n" + TEXT + b" 550\r\n"


async def test_a_policy_splits_a_message(kit: Kit) -> None:
    async def one_each(draft: Draft) -> Sequence[Draft]:
        return [replace(draft, recipients=[each]) for each in draft.recipients]

    async with kit.queue(before_enqueue=[one_each]) as queue:
        names = await queue.enqueue(ME, [YOU, THEM], TEXT)
        await kit.settled(2)
    assert len(set(names)) == 2
    assert sorted(mail.recipients[0] for mail in kit.relay.mails) == sorted([YOU, THEM])


async def test_a_policy_refuses_a_message(kit: Kit) -> None:
    async def refuse(draft: Draft) -> None:
        raise Refused(NEVER)

    async with kit.queue(before_enqueue=[refuse]) as queue:
        with pytest.raises(Refused):
            await queue.enqueue(ME, [YOU], TEXT)
        assert queue.stats()[Area.INCOMING].recipients == 0


async def test_policies_before_delivery(kit: Kit) -> None:
    async def mark(mail: Mail) -> Mail | Reply | None:
        if mail.recipients == [THEM]:
            return NEVER
        return replace(mail, headers=b"X-Mark: yes\r\n")

    async with kit.queue(before_delivery=[mark], reports=False) as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        await queue.enqueue(ME, [THEM], TEXT)
        await kit.settled(2)
    assert kit.relay.octets == [b"X-Mark: yes\r\n" + TEXT]
    assert kit.observer.count(Verb.BOUNCED) == 1


async def test_attempts_at_once_are_bounded(kit: Kit) -> None:
    running, most, release = 0, 0, asyncio.Event()

    async def slow(mail: Mail) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1
        return OK

    async with kit.queue(relay=slow, at_once=2) as queue:
        for _ in range(6):
            await queue.enqueue(ME, [YOU], TEXT)
        while running < 2:
            await asyncio.sleep(0)
        release.set()
        await kit.settled(6)
    assert most == 2


class Unreadable(MappingStore):
    """Its contents cannot be read while `broken`."""

    broken = True

    async def content(self, spid: int) -> MemoryContent:
        if self.broken:
            raise StoreUnavailable("the disk is gone")
        return await super().content(spid)


async def test_mail_that_cannot_be_read_is_kept_untried(kit: Kit) -> None:
    store = kit.store = Unreadable()
    async with kit.queue() as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        while not kit.observer.count(Verb.ATTEMPTED):
            await asyncio.sleep(0)
        store.broken = False
        async with asyncio.timeout(20):
            while not kit.observer.count(Verb.DELIVERED):
                kit.clock.advance(1000)
                await asyncio.sleep(0)
    assert kit.observer.count(Verb.DEFERRED) == 0


@pytest.mark.parametrize(
    ("sender", "recipients", "content"),
    [
        (ME, [], TEXT),
        (ME, ["no address"], TEXT),
        ("nobody", [YOU], TEXT),
        (ME, [YOU], b"a\0b"),
        (ME, [YOU], b"a\rb"),
    ],
)
async def test_what_is_no_message_is_refused(
    kit: Kit, sender: str, recipients: list[str], content: bytes
) -> None:
    async with kit.queue() as queue:
        with pytest.raises(ValueError, match=r"."):
            await queue.enqueue(sender, recipients, content)
        assert queue.stats()[Area.INCOMING].recipients == 0


@pytest.mark.parametrize(("sender", "recipient"), [(ME, f"{'x' * 20_000}@a.example"), ("x" * 20_000, YOU)])
async def test_an_envelope_of_its_own_needs_addresses_too(kit: Kit, sender: str, recipient: str) -> None:
    async with kit.queue() as queue:
        # A claim would put a record with such a one into quarantine.
        envelope = Envelope(spid=queue.reserve(False), sender=sender, received=kit.clock.now())
        with pytest.raises(ValueError, match="mail address"):
            await queue.submit(Submission(envelope=envelope, recipients=(recipient,), content=TEXT))
        assert queue.stats()[Area.INCOMING].recipients == 0


async def test_contents_of_each_kind(kit: Kit) -> None:
    made = EmailMessage()
    made["Subject"] = "ü"
    made.set_content("text")
    async with kit.queue() as queue:
        await queue.enqueue(ME, [YOU], "Subject: a\n\nbody\n")
        await queue.enqueue(ME, [YOU], made)
        await kit.settled(2)
    assert kit.relay.octets[0] == TEXT
    assert b"\r\n\r\ntext\r\n" in kit.relay.octets[1]


async def test_a_queue_is_open_only_in_between(kit: Kit) -> None:
    queue = kit.queue()
    with pytest.raises(StoreUnavailable):
        await queue.enqueue(ME, [YOU], TEXT)
    async with queue:
        await queue.open()
    await queue.close()
    with pytest.raises(StoreUnavailable):
        await queue.enqueue(ME, [YOU], TEXT)


async def test_a_directory_belongs_to_one_queue(tmp_path: Path) -> None:
    async with Queue(tmp_path):
        with pytest.raises(StoreBusy):
            await Queue(tmp_path).open()


async def test_a_close_that_is_cancelled_closes_all_the_same(tmp_path: Path) -> None:
    trying, ends = asyncio.Event(), asyncio.Event()

    async def relay(mail: Mail) -> Reply:
        trying.set()
        await ends.wait()
        return OK

    observer = RecordingObserver()
    queue = Queue(tmp_path, relay, observer=observer)
    await queue.open()
    await queue.enqueue(ME, [YOU], TEXT)
    await trying.wait()
    closing = asyncio.create_task(queue.close())
    await turns()
    closing.cancel()
    await turns()
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert observer.count(Verb.DELIVERED) == 1
    async with Queue(tmp_path):
        pass


async def test_mail_without_a_relay_waits_for_one(tmp_path: Path) -> None:
    async with Queue(tmp_path) as queue:
        await queue.enqueue(ME, [YOU], TEXT)
    relay, observer = Relay(), RecordingObserver()
    async with Queue(tmp_path, relay, observer=observer) as queue:
        while not observer.count(Verb.DELIVERED):
            await asyncio.sleep(0)
    assert relay.octets == [TEXT]


@pytest.mark.parametrize("lmtp", [False, True])
async def test_mqcds_own_client_is_a_relay(tmp_path: Path, lmtp: bool) -> None:
    received: list[Received] = []
    clock, settings = SystemClock(), SinkSettings(limits=Limits(lmtp=lmtp))
    sink = await start(settings, now_ms=clock.now, on_received=received.append)
    observer = RecordingObserver()
    relay = SmtpRelay(host="127.0.0.1", port=sink.port, lmtp=lmtp)
    async with Queue(tmp_path, relay, observer=observer) as queue:
        await queue.enqueue(ME, [YOU, THEM], TEXT)
        while observer.count(Verb.DELIVERED) < 2:
            await asyncio.sleep(0)
    await sink.close()
    assert {each.sender for each in received} == {ME}
    assert {recipient for each in received for recipient in each.recipients} == {YOU, THEM}


class FullStore(MappingStore):
    """Records nothing while it is full."""

    full = False

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        return failed(StoreUnavailable("full")) if self.full else super().write(write)


async def test_what_is_retried_is_relayed_before_its_time(kit: Kit) -> None:
    kit.relay.replies = {YOU: LATER, THEM: LATER}
    async with kit.queue() as queue:
        await queue.enqueue(ME, [YOU, THEM], TEXT)
        await kit.settled(2)
        assert await queue.retry(Selection(recipient=YOU)) == 1
        await kit.settled(3)
        assert kit.relay.mails[-1].recipients == [YOU]
    with pytest.raises(StoreUnavailable):
        await queue.retry()


async def test_a_retry_waits_for_a_store_that_is_full_until_a_close(kit: Kit) -> None:
    store = kit.store = FullStore()
    async with kit.queue(relay=None) as queue:
        await queue.enqueue(ME, [YOU], TEXT)
        store.full = True
        retrying = asyncio.create_task(queue.retry())
        await turns()
        store.full = False
        kit.clock.advance(1000)
        assert await retrying == 1
        store.full = True
        retrying = asyncio.create_task(queue.retry())
        await turns()
    with pytest.raises(StoreUnavailable):
        await retrying


def test_a_script_has_a_queue_without_a_loop(tmp_path: Path) -> None:
    with SyncQueue(Queue(tmp_path)) as queue:
        queue.enqueue(ME, [YOU, THEM], TEXT)
        assert queue.waiting() == 2
        assert {each.address for each in queue.recipients()} == {YOU, THEM}
        assert queue.retry() == 2
    with pytest.raises(StoreUnavailable):
        queue.waiting()


def test_a_queue_that_cannot_open_leaves_no_thread(tmp_path: Path) -> None:
    with SyncQueue(Queue(tmp_path)):
        other = SyncQueue(Queue(tmp_path))
        with pytest.raises(StoreBusy):
            other.open()
        other.close()


LOOP = """
import asyncio, sys
from mqcd.embed import Mail, Queue, Reply

async def relay(mail: Mail) -> Reply:
    print("relayed", mail.recipients[0], flush=True)
    return Reply(code=250)

async def main() -> None:
    async with Queue(sys.argv[1], relay if len(sys.argv) > 3 else None) as queue:
        for number in range(int(sys.argv[2])):
            await queue.enqueue("me@example.org", [f"r{number}@example.net"], "Subject: a\\n\\nbody\\n")
            print("taken", f"r{number}@example.net", flush=True)
        while sys.stdin.readline():
            pass

asyncio.run(main())
"""


def test_a_killed_program_loses_nothing(tmp_path: Path) -> None:
    seen: dict[str, set[str]] = {"taken": set(), "relayed": set()}
    for relays in ([], ["relay"]):
        child = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), "200", *relays],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            kind, address = line.split()
            seen[kind].add(address)
            if number == 120:
                child.send_signal(signal.SIGKILL)
        child.communicate()

    async def left() -> set[str]:
        async with Queue(tmp_path) as queue:
            return {each.address async for each in queue.recipients()}

    assert seen["taken"] <= asyncio.run(left()) | seen["relayed"]
    assert seen["relayed"]


def test_the_import_brings_in_nothing_heavy() -> None:
    script = "import mqcd.embed, sys; print(*{'lxml', 'aiosmtpd', 'dns', 'mqcd.queue'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


# ------------------------------------------------------------ the tutorial

PAGE = Path(__file__).parents[3] / "docs" / "library.md"
EXAMPLES = dict(re.findall(r"```python title=(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL))


def test_the_first_example_relays(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES["first"]], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "relayed to you@example.net\n")


def test_the_other_examples_make_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for title, text in EXAMPLES.items():
        if title != "first":
            exec(compile(text, title, "exec"), names)
    assert names["backoff"](None, 2) == 120.0
    assert isinstance(names["queue"], Queue)


async def test_the_examples_of_policies_and_reports(kit: Kit) -> None:
    names: dict[str, Any] = {"relay": kit.relay}
    for title in ("backoff", "bounce", "policies"):
        exec(compile(EXAMPLES[title], title, "exec"), names)
    policies = {"before_enqueue": [names["one_each"]], "before_delivery": [names["mark"]]}
    async with kit.queue(bounce=names["bounce"], **policies) as queue:
        await queue.enqueue(ME, [YOU, "x@no.invalid"], TEXT)
        await kit.settled(2)
        await kit.reported(3)
    assert kit.relay.octets[0].startswith(b"X-Attempts: 0\r\n")
    assert kit.relay.octets[1].endswith(b"x@no.invalid: 550 No such domain\r\n")
