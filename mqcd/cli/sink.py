"""`sink`: a receiver for tests, until it is interrupted."""

from __future__ import annotations

from pathlib import Path

import click

from mqcd.cli.options import as_json, takes_place


@click.command(short_help="Receive mail, for tests.")
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), default=2526, show_default=True,
              help="TCP port; 0 takes any free one.")  # fmt: skip
@click.option("--host", metavar="IP", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--rule", "rules", metavar="PATTERN=ACTION", multiple=True,
              help="What is done to recipients that match; the first match wins. ACTION: accept, "
                   "'450 text', '550 text', stall:STAGE, drop:STAGE, slow:MS, garbage:STAGE, "
                   "endless:STAGE, 'reply:STAGE:250 text', drip:STAGE:MS. STAGE: connect, ehlo, "
                   "mail, rcpt, data, dot.")  # fmt: skip
@click.option("--store", metavar="DIR", type=click.Path(path_type=Path), help="Keep each message here.")
@click.option("--quiet", is_flag=True, help="Tell nothing of single messages.")
@as_json
@takes_place()
def sink(port: int, host: str, rules: tuple[str, ...], store: Path | None, quiet: bool, as_json: bool) -> int:
    """Receive mail: accept, refuse, stall or drop it as rules say. SIGINT or SIGTERM ends it."""
    from mqcd.cli import receiving
    from mqcd.sink.rules import RuleError, Rules

    try:
        parsed = Rules.parse(rules)
    except RuleError as error:
        raise click.BadParameter(str(error), param_hint="--rule") from error
    return receiving.run(host, port, parsed, store, quiet=quiet, as_json=as_json)
