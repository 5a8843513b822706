"""Mail that waits is made due at once: which, how much is said of it, and what a restart leaves."""

from __future__ import annotations

from mqcd.core.model import Area, Recipient
from mqcd.core.ports import QueueStore
from mqcd.core.selecting.selection import Selection
from tests.contract.harness import HOUR, Harness, Restart
from tests.contract.mail import Post, bounced, deferred, where


async def put_off(post: Post, *addresses: str, sender: str = "sender@example.com") -> None:
    """Each in an hour."""
    for address in addresses:
        await post.send(address, sender=sender)
    await put_back(post, *await post.claim_all())


async def put_back(post: Post, *recipients: Recipient) -> None:
    """What was claimed is tried again in an hour."""
    await post.settle(deferred(post.clock.now() + HOUR), *recipients)


async def claimed(post: Post) -> set[str]:
    return {each.address for each in await post.claim_all()}


async def test_all_that_waits_is_due_now(store: QueueStore, post: Post) -> None:
    await put_off(post, "a@x.example", "b@y.example")
    done = await store.expedite(Selection())
    assert (done.matched, done.changed) == (2, 2)
    assert store.next_due() == post.clock.now()
    assert await claimed(post) == {"a@x.example", "b@y.example"}


SELECTIONS = [
    (Selection(domain="x.example"), {"a@x.example", "b@x.example"}),
    (Selection(domain="*.example", recipient="b*"), {"b@x.example"}),
    (Selection(sender="LIST@*"), {"c@z.example"}),
    (Selection(sender=""), set()),
    (Selection(area=Area.DEFERRED), {"a@x.example", "b@x.example", "c@z.example"}),
    (Selection(area=Area.BOUNCES), set()),
    (Selection(received_before=1), set()),
    (where("domain = x.example and not recipient ~ b*"), {"a@x.example"}),
    (where("sender ~ list@* or recipient = b@x.example"), {"b@x.example", "c@z.example"}),
    (
        where("class = mailbox and due > 30m and code < 500"),
        {"a@x.example", "b@x.example", "c@z.example"},
    ),
    (where("age > 1h or area = bounces"), set()),
]


async def test_only_what_is_selected(post: Post) -> None:
    await put_off(post, "a@x.example", "b@x.example")
    await put_off(post, "c@z.example", sender="list@here.example")
    for selection, expected in SELECTIONS:
        done = await post.store.expedite(selection)
        assert (done.matched, done.changed) == (len(expected), len(expected)), selection
        recipients = await post.claim_all()
        assert {each.address for each in recipients} == expected, selection
        await put_back(post, *recipients)


async def test_a_limit_counts(store: QueueStore, post: Post) -> None:
    await put_off(post, *[f"r{n}@x.example" for n in range(9)])
    assert (await store.expedite(Selection(limit=4))).changed == 4
    assert len(await claimed(post)) == 4


async def test_a_dry_run_changes_nothing(store: QueueStore, post: Post) -> None:
    await put_off(post, "a@x.example")
    found = await store.expedite(Selection(domain="x.example"), dry_run=True)
    assert (found.matched, found.changed, found.domains) == (1, 1, frozenset({"x.example"}))
    assert await claimed(post) == set()


async def test_what_is_due_in_flight_or_bounced_is_not_changed(store: QueueStore, post: Post) -> None:
    await put_off(post, "a@x.example")
    await post.send("b@x.example")
    await post.settle(bounced(), *await post.claim_all())
    await post.send("c@x.example")
    await post.claim_all()
    await post.send("d@x.example")
    done = await store.expedite(Selection(domain="x.example"))
    assert (done.matched, done.changed) == (2, 1)


async def test_a_suspended_domain_comes_back(store: QueueStore, post: Post) -> None:
    await put_off(post, "a@x.example")
    await post.send("b@x.example", "c@y.example")
    skip = {"x.example": post.clock.now() + HOUR}
    assert [each.address for each in await store.claim(9, post.clock.now(), skip)] == ["c@y.example"]
    assert (await store.expedite(Selection(domain="x.example"))).changed == 2
    assert await claimed(post) == {"a@x.example", "b@x.example"}


async def test_it_is_tried_later_after_a_restart_at_worst(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_off(post, "a@x.example", "b@y.example")
    post = Post(await harness.restart(how), harness.clock)
    done = await post.store.expedite(Selection(domain="x.example"))
    assert (done.matched, done.changed) == (1, 1)
    post = Post(await harness.restart(how), harness.clock)
    assert await claimed(post) <= {"a@x.example"}
    harness.clock.advance(HOUR)
    assert len(await post.scan()) == 2


async def test_after_a_restart_a_condition_selects(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_off(post, *[f"{name}{n}@{name}.example" for n in range(9) for name in ("x", "y")])
    post = Post(await harness.restart(how), harness.clock)
    found = await post.store.expedite(where("recipient ~ x* and not domain = y.example and attempts = 1"))
    assert found.matched == 9
    assert await claimed(post) == {f"x{n}@x.example" for n in range(9)}


async def test_after_a_restart_those_selected_are_claimed(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await put_off(post, *[f"{name}{n}@{name}.example" for n in range(20) for name in ("x", "y")])
    post = Post(await harness.restart(how), harness.clock)
    assert (await post.store.expedite(Selection(domain="x.example"))).matched == 20
    assert await claimed(post) == {f"x{n}@x.example" for n in range(20)}
    assert len(await claimed(post)) == 0
    harness.clock.advance(HOUR)
    assert await claimed(post) == {f"y{n}@y.example" for n in range(20)}
