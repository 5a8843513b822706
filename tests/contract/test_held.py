"""Mail that rests for its domain: what is held, what a domain's claim gives, and when it ends."""

from __future__ import annotations

import pytest

from mqcd.core.model import Action, Area, Deferred, Recipient, Settlement
from mqcd.core.selecting.selection import Selection
from tests.contract.harness import HOUR, MINUTE, Harness, Restart
from tests.contract.mail import ATTEMPT, Post, batch, carry_out, deferred, delivered, read_all, where
from tests.fakes.clock import FakeClock

ATRN = "a.atrn.example"
ETRN = "etrn.example"


def unreached(clock: FakeClock) -> Deferred:
    """The verdict of an attempt that reached no host."""
    due = clock.now() + 72 * HOUR
    return Deferred(reply=deferred(due).reply, attempt=ATTEMPT, due=due, held=True)


async def rest(post: Post, *addresses: str) -> None:
    """Mail that was tried once."""
    for address in addresses:
        await post.send(address)
    await post.settle(unreached(post.clock), *await post.claim_all())


def names(recipients: list[Recipient]) -> list[str]:
    return [each.address for each in recipients]


async def held(post: Post, domain: str, room: int = 100) -> list[Recipient]:
    return list(await post.store.claim_held(domain, room))


async def test_a_held_domain_is_held_at_acceptance(post: Post, harness: Harness) -> None:
    await post.send("a@hold.example", f"b@{ATRN}", "c@atrn.example", "d@etrn.example")
    assert {each.domain for each in await post.claim_all()} == {"atrn.example", "etrn.example"}
    assert post.store.stats()[Area.HELD].recipients == 2
    assert set(post.store.held_domains()) == {ATRN}
    assert await held(post, "hold.example") == []


async def test_what_is_given_to_be_held_waits_for_an_operator(
    restarting: tuple[Harness, Restart],
) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    given = {"a@x.example": "tag=x hold=spring", f"b@{ATRN}": "hold=spring", "c@x.example": "tag=hold"}
    for address, labels in given.items():
        await post.store.enqueue(post.submission(address, labels=labels))
    post = Post(await harness.restart(how), harness.clock)
    assert names(await post.claim_all()) == ["c@x.example"]
    assert await held(post, ATRN) == []
    found = (await post.scan(where("hold = spring"))).values()
    assert {(each.area, each.due) for each in found} == {(Area.HELD, 0)}
    order = batch(Action.RELEASE, post)
    assert await carry_out(post.store, order, where("hold = spring")) == (2, 0)
    assert set(names(await post.claim_all())) == {"a@x.example", f"b@{ATRN}"}


async def test_held_mail_of_a_domain_comes_alone(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("1@etrn.example", "2@b.atrn.example")
    await rest(post, "3@etrn.example")
    await post.send(f"4@{ATRN}", content=b"Subject: 4\r\n\r\nfour\r\n")
    await post.send(f"5@{ATRN}")
    post = Post(await harness.restart(how), harness.clock)
    assert await post.claim_all() == []
    assert set(post.store.held_domains()) == {ATRN, ETRN, "b.atrn.example"}
    first = await held(post, ATRN, room=1)
    assert names(first) == [f"4@{ATRN}"]
    assert await read_all(await post.store.content(first[0])) == b"Subject: 4\r\n\r\nfour\r\n"
    assert names(await held(post, ATRN)) == [f"5@{ATRN}"]
    assert await held(post, ATRN) == []
    assert sorted(names(await held(post, ETRN))) == ["1@etrn.example", "3@etrn.example"]
    assert set(post.store.held_domains()) == {"b.atrn.example"}


async def test_what_is_not_taken_rests_again(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    for number in range(3):
        await post.send(f"{number}@{ATRN}")
    first, second, third = await held(post, ATRN)
    await post.store.begin([first], "atrn")
    await post.store.settle([Settlement(recipient=first, verdict=delivered())])
    await post.store.park([second, third], 0)
    assert post.store.stats()[Area.HELD].recipients == 2
    post = Post(await harness.restart(how), harness.clock)
    assert await post.claim_all() == []
    assert sorted(names(await held(post, ATRN))) == [f"1@{ATRN}", f"2@{ATRN}"]


async def test_mail_let_go_that_has_to_wait_is_deferred(post: Post) -> None:
    await rest(post, "a@etrn.example")
    claimed = await held(post, ETRN)
    await post.store.park(claimed, post.clock.now() + MINUTE)
    assert post.store.stats()[Area.DEFERRED].recipients == 1
    post.clock.advance(2 * MINUTE)
    assert names(await post.claim_all()) == ["a@etrn.example"]


@pytest.mark.parametrize("verdict", ["delivered", "deferred"])
async def test_a_domains_mail_gets_the_usual_verdicts(post: Post, verdict: str) -> None:
    await rest(post, "a@etrn.example")
    claimed = await held(post, ETRN)
    await post.store.begin(claimed, "etrn")
    later = post.clock.now() + MINUTE
    await post.settle(delivered() if verdict == "delivered" else deferred(later), *claimed)
    assert post.store.stats()[Area.HELD].recipients == 0
    post.clock.advance(2 * MINUTE)
    assert len(await post.claim_all()) == (verdict == "deferred")


async def test_a_crash_leaves_held_mail_held(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    if how is not Restart.KILL:
        return
    post = Post(await harness.start(), harness.clock)
    await post.send(f"a@{ATRN}")
    await post.store.begin(await held(post, ATRN), "atrn")
    post = Post(await harness.restart(how), harness.clock)
    assert await post.claim_all() == []
    (again,) = await held(post, ATRN)
    assert (again.area, again.attempts, again.unknowns) == (Area.HELD, 1, 1)


async def test_rest_ends_at_the_due_time(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send(f"a@{ATRN}")
    await rest(post, "b@etrn.example")
    post = Post(await harness.restart(how), harness.clock)
    due = harness.clock.now() + 72 * HOUR
    assert post.store.next_due() == due
    harness.clock.advance(72 * HOUR)
    # No suspension of its destination keeps it.
    found = await post.store.claim(10, harness.clock.now(), {ETRN: harness.clock.now() + HOUR})
    assert [(each.address, each.area) for each in found] == [("b@etrn.example", Area.HELD)]
    assert post.store.next_due() == due + 48 * HOUR
    harness.clock.advance(48 * HOUR)
    assert names(await post.claim_all()) == [f"a@{ATRN}"]


async def test_an_operators_release_lets_it_go(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    await post.send("a@hold.example", f"b@{ATRN}")
    post = Post(await harness.restart(how), harness.clock)
    for domain in ("hold.example", ATRN):
        order = batch(Action.RELEASE, post, id=domain)
        assert await carry_out(post.store, order, Selection(domain=domain)) == (1, 0)
    assert sorted(names(await post.claim_all())) == ["a@hold.example", f"b@{ATRN}"]
    assert not post.store.held_domains()


async def test_an_operators_hold_hides_it_from_its_domain(post: Post) -> None:
    await post.send("a@etrn.example")
    assert await carry_out(post.store, batch(Action.HOLD, post)) == (1, 0)
    assert await held(post, ETRN) == []
    assert not post.store.held_domains()
