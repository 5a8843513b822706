"""`sink`: a receiver for tests, until it is interrupted."""

from __future__ import annotations

from pathlib import Path

import click

from mqcd.cli.options import as_json, takes_place


@click.command(short_help="Receive mail, for tests.")
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), default=2526, show_default=True,
              help="TCP port; 0 = any free one.")  # fmt: skip
@click.option("--host", metavar="IP", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--rule", "rules", metavar="PATTERN=ACTION", multiple=True,
              help="Action for matching recipients; the first matching rule applies. ACTION: accept, "
                   "'450 text', '550 text', stall:STAGE, drop:STAGE, slow:MS, garbage:STAGE, "
                   "endless:STAGE, 'reply:STAGE:250 text', drip:STAGE:MS. STAGE: connect, ehlo, "
                   "mail, rcpt, data, dot.")  # fmt: skip
@click.option("--lmtp", is_flag=True, help="Speak LMTP: each recipient has its own reply to the message.")
@click.option("--chunking", is_flag=True, help="Offer CHUNKING (BDAT).")
@click.option("--dsn", is_flag=True, help="Offer DSN, and show RET, ENVID, NOTIFY and ORCPT.")
@click.option("--store", metavar="DIR", type=click.Path(path_type=Path), help="Store each message here.")
@click.option("--quiet", is_flag=True, help="Do not print each message.")
@as_json
@takes_place()
def sink(
    port: int,
    host: str,
    rules: tuple[str, ...],
    lmtp: bool,
    chunking: bool,
    dsn: bool,
    store: Path | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Receive mail: accept, refuse, stall or drop it by rules. SIGINT or SIGTERM ends it."""
    from mqcd.cli import receiving
    from mqcd.sink.outputs import DEFAULT_EXTENSIONS, OPTIONAL_EXTENSIONS, Limits
    from mqcd.sink.rules import RuleError, Rules
    from mqcd.sink.server import SinkSettings

    try:
        parsed = Rules.parse(rules)
    except RuleError as error:
        raise click.BadParameter(str(error), param_hint="--rule") from error
    wanted = [name for name, on in zip(OPTIONAL_EXTENSIONS, (chunking, dsn), strict=True) if on]
    limits = Limits(extensions=(*DEFAULT_EXTENSIONS, *wanted), lmtp=lmtp)
    settings = SinkSettings(host=host, port=port, rules=parsed, limits=limits)
    return receiving.run(settings, store, quiet=quiet, as_json=as_json)
