"""All nodes of a plan, each in a process of its own: they share the world and nothing else."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.eventlogs.node import Node
from tests.bench.eventlogs.truth import Told, Truth, write_world
from tests.bench.eventlogs.world import Plan, build
from tests.bench.eventlogs.writing import EventWriter


def generate(plan: Plan, directory: Path, *, processes: int = 0) -> Told:
    """Write DIRECTORY/events and DIRECTORY/truth; gives the truth.

    `processes`: at a time; 0 = as many as there are processors, 1 = in this one.
    """
    events, truth = directory / "events", directory / "truth"
    events.mkdir(parents=True)
    truth.mkdir()
    write_world(truth, plan, build(plan))
    numbers = range(plan.nodes)
    if processes == 1:
        for number in numbers:
            one(plan, directory, number)
    else:
        with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
            list(pool.map(one, [plan] * plan.nodes, [directory] * plan.nodes, numbers))
    return Told(truth)


def one(plan: Plan, directory: Path, number: int) -> None:
    """The files of one node."""
    world = build(plan)
    name = f"mail{number + 1}"
    share = plan.events // plan.nodes + (number < plan.events % plan.nodes)
    writer = EventWriter(directory / "events", name, plan.segment)
    truth = Truth(directory / "truth", name, world)
    Node(plan, world, number, writer, truth).run(share)
