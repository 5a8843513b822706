"""The machine's clock behind the port."""

from mqcd.net.clock import SystemClock


async def test_time_goes_on_and_sleep_returns() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(1)
    assert clock.monotonic() > before
    await clock.sleep(-5)
    assert clock.now() > 1_600_000_000_000
