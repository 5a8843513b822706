"""Which domains claims pass over, and until when: of lanes that are suspended, or hold their share. Pure."""

from __future__ import annotations

from mqcd.deliver.lanes import MOST_GRACE_MS, Lane

MAX_DOMAINS = 1000
"""Domains of a suspended lane that are named to the store; others are claimed and given back."""


class Passing:
    """By domain, the lane that alone takes its mail; and the lanes whose domains may be passed over."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._homes: dict[str, Lane] = {}

    def clear(self) -> None:
        """Domains may have other lanes from now on."""
        for lane in self._homes.values():
            lane.domains.clear()
        self._homes.clear()

    def add(self, lane: Lane) -> None:
        """Its domains are passed over for as long as it says so."""
        self._lanes[lane.name] = lane

    def belongs(self, domain: str, lane: Lane) -> None:
        """All mail of a domain goes by this lane."""
        before = self._homes.get(domain)
        if before is lane:
            return
        if before is not None:
            del self._homes[domain]
            before.domains.discard(domain)
        if len(lane.domains) < MAX_DOMAINS:
            lane.domains.add(domain)
            self._homes[domain] = lane

    def forget(self, lane: Lane) -> None:
        """There is no such lane any more."""
        self._lanes.pop(lane.name, None)
        for domain in lane.domains:
            self._homes.pop(domain, None)

    def skip(self, now: int) -> dict[str, int]:
        """Domains that claims pass over, and for how many ms from now."""
        skipped: dict[str, int] = {}
        for lane in tuple(self._lanes.values()):
            rest = lane.passed_over(now)
            if rest > 0:
                skipped.update(dict.fromkeys(lane.domains, rest))
            elif not lane.suspended:
                del self._lanes[lane.name]
        return skipped

    def is_dead(self, domain: str) -> bool:
        """Whether a domain that claims pass over is so because its destination is suspended."""
        lane = self._homes.get(domain)
        return lane is not None and lane.suspended

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def suspended(self) -> int:
        """How many lanes are suspended."""
        return sum(lane.suspended for lane in self._lanes.values())

    def deserted(self, now: int) -> list[Lane]:
        """Suspended lanes whose probe should have begun, and nobody came for it: no mail waits for them."""
        return [
            lane
            for lane in self._lanes.values()
            if lane.suspended and not lane.jobs and not lane.connections and not lane.aside
            if now > lane.until + MOST_GRACE_MS
        ]
