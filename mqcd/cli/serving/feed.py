"""`feed`: the webhooks and the traces that the event log is sent to: how far each has come, and a trial."""

from __future__ import annotations

import click

from mqcd.cli.options import Place, as_json, at_place, show
from mqcd.core.errors import ConfigError
from mqcd.net.clock import SystemClock


@click.group(short_help="Show how far webhooks and traces have come, or try a webhook.")
def feed() -> None:
    """Feeds of the event log: webhooks and traces, as <ops><feeds> names them. The server runs them."""


@feed.command("ls", short_help="List feeds: events sent, gaps, the last error.")
@as_json
@at_place
def ls(place: Place, as_json: bool) -> int:
    """List the feeds: how many events each has sent, and why it sends none."""
    from mqcd.core.events import format_time
    from mqcd.daemon.feeds.terms import names_of
    from mqcd.disk.durable import Disk
    from mqcd.feeds.position import Position, Positions

    settings = place.load().settings
    positions = Positions(Disk(), settings.ops.feeds.rootpath)
    for name in names_of(settings):
        there = positions.seen(name, SystemClock().now())
        found = there or Position()
        since = format_time(found.since) if found.since else None
        row = {"feed": name, "sent": found.sent, "gaps": found.gaps, "failing_since": since}
        row["error"] = found.error or None
        well = "good" if there else "has not begun"
        state = f"fails since {since}: {found.error}" if since else well
        gaps = f", {found.gaps} gaps (event files were removed before they were sent)" if found.gaps else ""
        show(row, f"{name}: {found.sent} events sent{gaps}; {state}", as_json)
    return 0


@feed.command(short_help="Send a request without events to a webhook.")
@click.argument("name")
@at_place
def test(place: Place, name: str) -> int:
    """Send a webhook a signed request with no events in it. Exit code 1: it was not taken."""
    import asyncio

    from mqcd.daemon.feeds.terms import check_feeds
    from mqcd.disk.durable import Disk

    settings = place.load().settings
    check_feeds(settings)
    from mqcd.feeds.webhook import Webhook

    found = [each for each in settings.ops.feeds.webhooks if each.name == name]
    if not found:
        known = ", ".join(each.name for each in settings.ops.feeds.webhooks) or "none"
        raise ConfigError(f"there is no webhook {name}; the configuration has: {known}")

    async def send() -> None:
        webhook = Webhook(found[0], SystemClock(), Disk())
        try:
            await webhook.send([])
        finally:
            await webhook.close()

    asyncio.run(send())
    click.echo(f"{name}: taken by {found[0].url}")
    return 0
