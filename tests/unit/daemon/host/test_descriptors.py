"""The shares of the descriptors."""

from __future__ import annotations

import resource

import pytest

from mqcd.daemon.host.descriptors import divide, limit, raise_limit

LIMITS = (64, 256, 1024, 4096, 20_000, 1 << 20, 1 << 30)


@pytest.mark.parametrize("most", LIMITS)
def test_shares_never_exceed_the_limit(most: int) -> None:
    shares = divide(most)
    connections = 2 * (shares.inbound + shares.outbound + shares.lookups)
    assert shares.engine + shares.ops + connections <= most
    assert 0 < shares.trusted < shares.inbound


@pytest.mark.parametrize("most", LIMITS[1:])
def test_the_queue_keeps_a_reserve(most: int) -> None:
    assert divide(most).engine >= 96


def test_more_descriptors_are_more_connections() -> None:
    shares = [divide(most) for most in LIMITS]
    assert [share.inbound for share in shares] == sorted(share.inbound for share in shares)
    assert [share.outbound for share in shares] == sorted(share.outbound for share in shares)


def test_a_longer_ring_has_a_larger_reserve() -> None:
    assert divide(4096, segments=100).engine == divide(4096, segments=99).engine + 2


def test_the_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert limit() == min(soft, 512)
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
