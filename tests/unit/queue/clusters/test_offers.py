"""The order in which clusters are offered."""

from __future__ import annotations

import pytest

from mqcd.core.model import Area
from mqcd.queue.clusters.offers import Offers
from mqcd.queue.manifest.state import ClusterState


@pytest.mark.parametrize("place", ["incoming", "bounces", "held/a.example"])
@pytest.mark.parametrize("given_back", [[1], [1, 0], [3, 0, 2]])
def test_what_is_given_back_stands_where_its_age_says(place: str, given_back: list[int]) -> None:
    names = [f"{place}/M{number}-0.mqc" for number in range(5)]
    ages = [1, 2, 2, 3, 4]
    clusters = {
        name: ClusterState(name=name, size=9, cursor=1, left=1, octets=1, received=age, due=1)
        for name, age in zip(names, ages, strict=True)
    }
    offers = Offers(clusters)
    for state in clusters.values():
        offers.offer(state)
    chosen = [names[number] for number in given_back]
    offers.reserve(chosen)
    offers.give_back(chosen)
    order = []
    while name := offers.first_held("a.example") if "held" in place else offers.first(Area(place)):
        order.append(clusters[name].received)
        offers.reserve([name])
    assert order == ages
