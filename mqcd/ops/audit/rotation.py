"""The file of an audit log for a given time. Pure.

The path is a template, see `docs/configuration.md`. A file is named for the time that it covers and for
nothing else, so that restarts, clocks set back and late lines all find the right file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from mqcd.config.settings import Rotation
from mqcd.core.units import HOUR

_TOKEN = re.compile("%(?:DT|[YMD])%")
_LAST_HOUR = int(datetime(9999, 12, 31, 23, tzinfo=UTC).timestamp()) * 1000 // HOUR

_FREQUENT = [
    Rotation.NEVER,
    Rotation.YEARLY,
    Rotation.MONTHLY,
    Rotation.WEEKLY,
    Rotation.DAILY,
    Rotation.HOURLY,
]
"""From the rarest to the most frequent."""
_SAID_BY = {"%Y%": Rotation.YEARLY, "%M%": Rotation.MONTHLY, "%D%": Rotation.DAILY}
_STAMPS = {
    Rotation.YEARLY: "%Y",
    Rotation.MONTHLY: "%Y%m",
    Rotation.WEEKLY: "%Y%m%d",
    Rotation.DAILY: "%Y%m%d",
    Rotation.HOURLY: "%Y%m%d-%H",
}
_TELLING: dict[Rotation, list[set[str]]] = {
    Rotation.NEVER: [set()],
    Rotation.YEARLY: [{"%DT%"}, {"%Y%"}],
    Rotation.MONTHLY: [{"%DT%"}, {"%Y%", "%M%"}],
    Rotation.WEEKLY: [{"%DT%"}, {"%Y%", "%M%", "%D%"}],
    Rotation.DAILY: [{"%DT%"}, {"%Y%", "%M%", "%D%"}],
    Rotation.HOURLY: [{"%DT%"}],
}
"""Sets of tokens of which one is enough to distinguish the files."""


class Names:
    """The files of one audit log."""

    def __init__(self, template: Path, rotation: Rotation) -> None:
        used = set(_TOKEN.findall(str(template)))
        said = [rotation, *(_SAID_BY[token] for token in used & set(_SAID_BY))]
        if used == {"%DT%"} and rotation is Rotation.NEVER:
            said.append(Rotation.DAILY)
        self._rotation = max(said, key=_FREQUENT.index)
        if not any(tokens <= used for tokens in _TELLING[self._rotation]):
            template = template.with_name(f"{template.stem}-%DT%{template.suffix}")
        self._template = template
        self._of_hour = lru_cache(maxsize=64)(self._path)

    @property
    def directory(self) -> Path:
        """The deepest directory that is the same for all files."""
        fixed = self._template.parent
        while _TOKEN.search(str(fixed)):
            fixed = fixed.parent
        return fixed

    def path(self, at: int) -> Path:
        """The file of the moment `at`, ms; a moment that cannot be is taken for the nearest that can."""
        return self._of_hour(min(max(at // HOUR, 0), _LAST_HOUR))

    def _path(self, hour: int) -> Path:
        begin = datetime.fromtimestamp(hour * HOUR // 1000, UTC)
        if self._rotation is Rotation.WEEKLY:
            begin -= timedelta(days=begin.weekday())
        values = {
            "%DT%": begin.strftime(_STAMPS.get(self._rotation, "")),
            "%Y%": f"{begin:%Y}",
            "%M%": f"{begin:%m}",
            "%D%": f"{begin:%d}",
        }
        return Path(_TOKEN.sub(lambda token: values[token[0]], str(self._template)))


def numbered(path: Path, number: int) -> Path:
    """The file that follows `path` once that is full; 0 is `path` itself."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}") if number else path


def last_number(path: Path, there: Iterable[Path]) -> int:
    """The highest number that a file of `path` has among those in its directory; 0 without."""
    form = re.compile(re.escape(path.stem) + r"\.([0-9]{1,9})" + re.escape(path.suffix))
    found = (form.fullmatch(each.name) for each in there)
    return max((int(match[1]) for match in found if match), default=0)
