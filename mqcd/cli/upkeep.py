"""`fsck`: checks a queue, and repairs what can be repaired."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from mqcd.cli.options import Place, as_json, at_place, json_line
from mqcd.cli.progress import waiting
from mqcd.core.display import printable
from mqcd.core.errors import ConfigError, StoreDamaged
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from pathlib import Path

    from mqcd.config.settings import Settings
    from mqcd.core.progress import Progress
    from mqcd.queue.admin.findings import Findings, Problem
    from mqcd.queue.memory.shard_state import Options

Result = TypeVar("Result")
_SHOWN = 20
"""Notes of one kind in the text output."""


@click.command(short_help="Check the queue's files against each other.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired; no server may run.")
@as_json
@at_place
def fsck(place: Place, repair: bool, as_json: bool) -> int:
    """Check the files of the queue against each other, with or without a running server."""
    from mqcd.daemon.shards.division import shards_of
    from mqcd.disk.durable import Disk
    from mqcd.queue.admin.findings import plain, together
    from mqcd.queue.admin.fsck.survey import survey

    options = cluster_at(place, "fsck")
    place.give_way()
    drop_to_owner(options.settings.rootpath)
    refused: StoreDamaged | None = None
    found: list[Findings] = []
    with waiting(SystemClock()) as progress:
        for shard in shards_of(options):
            try:
                found.append(_repair(shard, progress) if repair else survey(Disk(), shard, progress))
            except StoreDamaged as error:
                refused = error
                found.append(survey(Disk(), shard, progress))
    findings = together(found)
    if refused is not None:
        click.echo(f"not repaired: {plain(refused)}", err=True)
    if as_json:
        click.echo(json_line(_as_fields(findings)), nl=False)
    else:
        _show(findings, repair)
    return 0 if findings.ok and refused is None else 1


def options_at(place: Place) -> Options:
    """The options of the server's first shard."""
    from mqcd.daemon.derived import options_of, schedule_of
    from mqcd.daemon.hashkey import hash_key

    settings = place.load().settings
    return options_of(settings, schedule_of(settings), hash_key(settings.ops.events, place.conf))


def cluster_at(place: Place, what: str) -> Options:
    """The same for a command `what` that needs the clustered-file queue. Raises ConfigError."""
    from mqcd.daemon.storing import need_cluster

    need_cluster(place.load().settings, what)
    return options_at(place)


def interruptible(work: Coroutine[object, object, Result]) -> Result:
    """Return what `work` returns. Ctrl-C ends it at once, by KeyboardInterrupt.

    `asyncio.run` would let it run until its next wait, and report it as interrupted although most is done.
    """
    import asyncio

    with asyncio.Runner() as runner:
        return runner.get_loop().run_until_complete(work)


@contextmanager
def until_decided() -> Iterator[Callable[[], None]]:
    """Yield a function that makes Ctrl-C ineffective until the block ends, so that the result is printed."""

    def decide() -> None:
        # Not SIG_IGN: Python writes about a signal that came just before it.
        signal.signal(signal.SIGINT, lambda *_: None)

    before = signal.getsignal(signal.SIGINT)
    try:
        yield decide
    finally:
        signal.signal(signal.SIGINT, before)


def drop_to_owner(root: Path, name: str | None = None, directories: Sequence[Path] = ()) -> str | None:
    """Root becomes the owner of a queue, so that no link of that user is followed and no file is root's.

    A queue that is not there is made for the user `name`, if one is given. Returns the new user's name.
    Raises ConfigError.
    """
    from mqcd.daemon.host.privileges import become_owner

    user = become_owner(root, name, directories)
    if user is None:
        return None
    click.echo(f"continuing as {user.pw_name}, the owner of {root}", err=True)
    return user.pw_name


def drop_to_server(settings: Settings) -> None:
    """Root becomes the user that the server becomes, if there is one. Raises ConfigError."""
    from mqcd.daemon.host.privileges import take_identity

    if settings.application.user is not None and os.geteuid() == 0:
        take_identity(settings.application.user, [])


def owner_of(settings: Settings) -> tuple[int, int] | None:
    """User and group that a file of the server gets which this command makes; None = this process's own.

    Raises ConfigError."""
    from mqcd.daemon.host.privileges import find_user

    if settings.application.user is None or os.geteuid() != 0:
        return None
    entry = find_user(settings.application.user)
    return entry.pw_uid, entry.pw_gid


def need_access(path: Path, owner: str | None, mode: int) -> None:
    """See that what is outside the queue can be used by its owner, too. Raises ConfigError."""
    there = next(each for each in (path.absolute(), *path.absolute().parents) if _exists(each))
    if owner is not None and not os.access(there, mode | os.X_OK):
        to_do = "write to" if mode & os.W_OK else "read"
        raise ConfigError(
            f"{path}: {owner}, the owner of the queue, cannot {to_do} it; as root: copy or make it where "
            f"{owner} can, and chown -R {owner} it"
        )


def _exists(path: Path) -> bool:
    """Also one that only root may look at."""
    try:
        path.lstat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _repair(options: Options, progress: Progress) -> Findings:
    from mqcd.disk.durable import Disk
    from mqcd.ops.fanout import Fanout
    from mqcd.queue.admin.fsck.repair import mend_roots, repair
    from mqcd.queue.admin.fsck.survey import survey
    from mqcd.queue.admin.ownership import owned

    async def mend() -> Findings:
        await mend_roots(Disk(), options, progress)
        async with owned(options, SystemClock(), Fanout()) as ours:
            return repair(ours, progress)

    # Where there is no queue, none is made.
    survey(Disk(), options, progress)
    return interruptible(mend())


def problem_fields(problems: Iterable[Problem]) -> list[dict[str, object]]:
    """Findings as JSON fields."""
    return [
        {"kind": each.kind.value, "path": str(each.path), "line": each.line, "text": each.text}
        for each in problems
    ]


def problem_line(problem: Problem) -> str:
    """A finding as people read it."""
    place = f"{problem.path}:{problem.line}" if problem.line is not None else str(problem.path)
    return printable(f"{place}: {problem.text}")


def _as_fields(findings: Findings) -> dict[str, object]:
    return {
        "ok": findings.ok,
        "records": findings.records,
        "contents": findings.contents,
        "quarantined": findings.quarantined,
        "orphans": len(findings.orphans),
        "missing": findings.missing,
        "running": findings.running,
        "problems": problem_fields(findings.problems),
        "notes": problem_fields(findings.notes),
    }


def _show(findings: Findings, repaired: bool) -> None:
    for problem in findings.problems:
        click.echo(problem_line(problem))
    for note in findings.notes[:_SHOWN]:
        click.echo(f"note: {problem_line(note)}")
    if len(findings.notes) > _SHOWN:
        click.echo(f"note: and {len(findings.notes) - _SHOWN} more; --json has them all")
    if findings.running and findings.orphans:
        click.echo("note: beside a running server a file without owner may just be coming or going")
    if repaired and findings.orphans and findings.withheld:
        click.echo(f"note: the orphans are kept: {findings.withheld}")
    counts = f"{findings.records} records, {findings.contents} contents, {findings.quarantined} quarantined"
    click.echo(f"{counts}, {len(findings.orphans)} orphans, {findings.missing} without content")
    if findings.ok:
        click.echo("no problems found")
        return
    number = len(findings.problems)
    left = " that cannot be mended" if repaired else ""
    click.echo(f"{number} problem{'' if number == 1 else 's'}{left}")
    if findings.damaged and not repaired:
        click.echo("`mqcd fsck --repair`, with the server stopped, puts damaged lines into quarantine")
