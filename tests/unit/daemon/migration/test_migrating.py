"""Mail moves from any store to any other whole, also when the move is killed."""

from __future__ import annotations

import gzip
import json
import shutil
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import permutations
from pathlib import Path

import pytest

from mqcd.cli.main import main
from mqcd.config.load import load
from mqcd.core.errors import ConfigError
from mqcd.core.events import MIGRATED
from mqcd.core.model import Action, Amended, Area, Batch, Recipient, Settlement
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.amendment import LATEST_MS
from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.derived import options_of, schedule_of
from mqcd.daemon.migration.migrating import Configured, Migrated, migrate
from mqcd.daemon.storing import make_store
from mqcd.disk.durable import Disk
from mqcd.ops.fanout import Fanout
from mqcd.queue.admin.fsck.survey import survey
from tests.contract.mail import Post, bounced, deferred, delivered
from tests.contract.schema import check
from tests.fakes.clock import FakeClock
from tests.fakes.killed import copy_as_killed
from tests.fakes.postgres_server import shared_server
from tests.fakes.redis_server import RedisServer

STORES = {
    "cluster": '<store class="cluster"/>',
    "files": '<store class="files"><env_dir>%DIRVAR%/mail</env_dir></store>',
    "symlinks": '<store class="symlinks"><rootpath>%DIRVAR%/links</rootpath></store>',
    "leveldb": '<store class="leveldb"><rootpath>%DIRVAR%/ldb</rootpath></store>',
    "sqlite": '<store class="tests.fakes.sqlite_store:SqliteStore"><rootpath>%DIRVAR%/db</rootpath></store>',
}
PAIRS = [*permutations(("cluster", "files", "sqlite"), 2), ("files", "files"), ("cluster", "cluster")]
KILLED = [("cluster", "files"), ("files", "sqlite"), ("sqlite", "cluster")]
"""Each store once as the source and once as the target; a move knows no pairs."""
LARGE = b"Subject: large\r\n\r\n" + b"0123456789abcdef\r\n" * 40_000
ENDS = ("delivered", "bounced", "expired", "removed")
Mail = Mapping[tuple[int, int], tuple[Recipient, bytes]]


class Place:
    """A configuration and the directory of its mail."""

    def __init__(self, path: Path, kind: str, clock: FakeClock, store: str = "") -> None:
        self.path = path
        self.kind = kind
        self.clock = clock
        self.conf = path / "conf" / "mqcd.xml"
        self.conf.parent.mkdir(parents=True, exist_ok=True)
        self.conf.write_text(
            "<mailserver><application><announcehost>mx.test</announcehost></application><mta><queue>"
            f"<shards>1</shards><minfree>1M</minfree>{store or STORES[kind]}"
            "<journal><segmentsize>1M</segmentsize><segments>4</segments></journal>"
            "</queue></mta><ops><events><maxage>0</maxage></events></ops></mailserver>"
        )

    @property
    def configured(self) -> Configured:
        loaded = load(self.conf, var=None, hostname="mx.test")
        return Configured(loaded.settings, self.conf)

    async def open(self) -> QueueStore:
        settings = self.configured.settings
        options = options_of(settings, schedule_of(settings))
        store, _ = make_store(settings, options, self.clock, Fanout(), self.conf)
        await store.open()
        await store.recovered()
        return store

    async def fill(self) -> None:
        store = await self.open()
        post = Post(store, self.clock)
        await post.send("new@one.example")
        await post.send("a@one.example", "b@two.example", "c@three.example", content=LARGE)
        await store.enqueue(post.submission("d@one.example", dsn=["NOTIFY=FAILURE ORCPT=rfc822;d@x"]))
        [first, second, third, *_] = await store.claim(3, self.clock.now())
        await store.settle([Settlement(recipient=first, verdict=deferred(self.clock.now() + 3_000_000))])
        await store.settle([Settlement(recipient=second, verdict=bounced())])
        await store.settle([Settlement(recipient=third, verdict=delivered())])
        await store.close()

    async def mail(self) -> Mail:
        store = await self.open()
        found = {}
        async for each in store.scan(Selection()):
            content = await store.content(each)
            octets = b""
            while chunk := await content.read(1 << 20):
                octets += chunk
            content.close()
            found[each.key] = each, octets
        await store.close()
        return found

    async def remove(self, address: str) -> None:
        store = await self.open()
        batch = Batch(id="b1", action=Action.REMOVE, at=self.clock.now(), by="uid:0", until=LATEST_MS)
        async for picked in store.pick(Selection(recipient=address), batch):
            verdict = Amended(batch=batch)
            await store.settle([Settlement(recipient=each, verdict=verdict) for each in picked.recipients])
        await store.close()

    def accounts(self) -> Mapping[tuple[int, int], int]:
        """Acceptances less ends of each recipient, by its events."""
        found: Counter[tuple[int, int]] = Counter()
        for path in self.configured.settings.ops.events.rootpath.glob("*.jsonl.gz"):
            for line in gzip.decompress(path.read_bytes()).splitlines():
                event = json.loads(line)
                check([event])
                verb, migrated = event["event"], event.get("reason") == MIGRATED
                key = parse_spid(event["spid"]), event["qid"]
                found[key] += (verb == "accepted") - migrated - (verb in ENDS) + (event.get("undone") in ENDS)
        return found

    def copy(self, path: Path) -> Place:
        copy_as_killed(self.path, path)
        return Place(path, self.kind, self.clock)


class LookedAt(FakeClock):
    """Calls back whenever it is asked for the time: stores ask in the middle of what they do."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look = look

    def now(self) -> int:
        self._look()
        return super().now()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def moved(source: Place, target: Place) -> Migrated:
    return await migrate(source.configured, target.configured, source.clock)


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_all_mail_moves_as_it_is(one: str, other: str, tmp_path: Path, clock: FakeClock) -> None:
    source, target = Place(tmp_path / "a", one, clock), Place(tmp_path / "b", other, clock)
    await source.fill()
    before = await source.mail()
    assert len(before) == 4
    done = await moved(source, target)
    assert (done.found, done.moved, done.skipped) == (3, 3, {})
    assert await target.mail() == before
    assert await source.mail() == {}
    assert (await moved(source, target)).found == 0
    await moved(target, source)
    assert await source.mail() == before
    for place in (source, target):
        if place.kind == "cluster":
            options = options_of(place.configured.settings, schedule_of(place.configured.settings))
            assert survey(Disk(), options).ok


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), KILLED)
async def test_a_kill_at_any_step_loses_and_doubles_nothing(
    one: str, other: str, tmp_path: Path, clock: FakeClock
) -> None:
    source, target = Place(tmp_path / "a", one, clock), Place(tmp_path / "b", other, clock)
    await source.fill()
    before = await source.mail()
    copies: list[tuple[Place, Place]] = []

    def look(*_: object) -> None:
        at = tmp_path / f"kill{len(copies)}"
        copies.append((source.copy(at / "a"), target.copy(at / "b")))

    await migrate(source.configured, target.configured, LookedAt(look), look)
    assert len(copies) >= 9
    for left, right in copies:
        assert (await moved(left, right)).skipped == {}
        assert await right.mail() == before
        assert await left.mail() == {}
        shutil.rmtree(left.path.parent)


@pytest.mark.parametrize(("one", "other"), [("cluster", "sqlite"), ("sqlite", "cluster")])
async def test_the_events_of_each_store_balance(
    one: str, other: str, tmp_path: Path, clock: FakeClock
) -> None:
    """Also those of a bounce and of removed mail."""
    source, target = Place(tmp_path / "a", one, clock), Place(tmp_path / "b", other, clock)
    await source.fill()
    await source.remove("d@one.example")
    areas = Counter(each.area for each, _ in (await source.mail()).values())
    assert areas == {Area.INCOMING: 1, Area.DEFERRED: 1, Area.BOUNCES: 1, Area.REMOVED: 1}
    await moved(source, target)
    for place in (source, target):
        mail = await place.mail()
        queued = [key for key, (each, _) in mail.items() if each.area not in (Area.BOUNCES, Area.REMOVED)]
        assert {key: excess for key, excess in place.accounts().items() if excess} == Counter(queued)
        assert len(mail) == (4 if place is target else 0)


async def test_mail_goes_through_databases(tmp_path: Path, clock: FakeClock) -> None:
    redis = RedisServer(tmp_path / "redis")
    postgres, schema = shared_server(), f"s{uuid.uuid4().hex}"
    stores = {
        "redis": f'<store class="redis"><url>{redis.url}</url></store>',
        "postgres": f'<store class="postgres"><url>{postgres.url}</url><schema>{schema}</schema></store>',
    }
    place = Place(tmp_path / "cluster", "cluster", clock)
    await place.fill()
    before = await place.mail()
    try:
        for kind, store in (*stores.items(), ("symlinks", ""), ("redis", stores["redis"]), ("leveldb", "")):
            target = Place(tmp_path / f"{kind}2", kind, clock, store)
            assert (await moved(place, target)).moved == 3
            assert await target.mail() == before
            assert await place.mail() == {}
            place = target
    finally:
        redis.stop()


async def test_new_mail_has_other_spids(tmp_path: Path, clock: FakeClock) -> None:
    source, target = Place(tmp_path / "a", "cluster", clock), Place(tmp_path / "b", "sqlite", clock)
    await source.fill()
    await moved(source, target)
    store = await target.open()
    spids = {spid async for spid in _spids(store)}
    assert store.reserve(False) > max(spids)
    await store.close()


async def _spids(store: QueueStore) -> AsyncIterator[int]:
    async for each in store.scan(Selection()):
        yield each.spid


async def test_another_message_of_the_same_spid_stays(tmp_path: Path, clock: FakeClock) -> None:
    source, target = Place(tmp_path / "a", "files", clock), Place(tmp_path / "b", "sqlite", clock)
    for place, recipient in ((source, "a@one.example"), (target, "b@two.example")):
        store = await place.open()
        await Post(store, clock).send(recipient)
        await store.close()
    ours, theirs = await source.mail(), await target.mail()
    done = await moved(source, target)
    assert (done.found, done.moved, list(done.skipped)) == (1, 0, [next(iter(ours))[0]])
    assert (await source.mail(), await target.mail()) == (ours, theirs)


@pytest.mark.parametrize("kind", STORES)
async def test_a_store_is_not_moved_to_itself(kind: str, tmp_path: Path, clock: FakeClock) -> None:
    place = Place(tmp_path / "a", kind, clock)
    await place.fill()
    with pytest.raises(ConfigError):
        await moved(place, place)


def test_the_command_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = (Place(tmp_path / name, "sqlite", FakeClock()) for name in "ab")
    words = ["queue", "migrate", "--from", str(source.conf), "--to", str(target.conf), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"found": 0, "moved": 0, "skipped": 0}
