"""The corpus, its beginnings and a bounded number of its mutations, through every target: needs no fuzzer."""

from __future__ import annotations

import os
import tracemalloc
import zlib
from pathlib import Path

import pytest

from mqcd.queue.events.lines import EXTRA
from tests.fuzz.mutations import mutations, truncations
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).with_name("corpus")
COUNT = int(os.environ.get("MQCD_FUZZ_MUTATIONS", "300"))
"""Mutations of each file of the corpus."""
_BEGINNINGS = 400
_MEMORY = 8 << 20
"""Octets that no target needs for a file of the corpus."""
FILES = [(target, path.name) for target in TARGETS for path in sorted((CORPUS / target).iterdir())]


def _read(target: str, name: str) -> bytes:
    return (CORPUS / target / name).read_bytes()


def test_the_corpus_is_small_and_every_target_has_one() -> None:
    assert {target for target, _ in FILES} == set(TARGETS)
    notes = {name for target, name in FILES if target == "note"}
    assert {mark.name.lower() for mark in EXTRA} <= notes, "run python -m tests.fuzz.seeds"
    assert sum(len(_read(*each)) for each in FILES) < 300_000


@pytest.mark.parametrize(("target", "name"), FILES)
def test_the_corpus_passes_in_bounded_memory(target: str, name: str) -> None:
    data = _read(target, name)
    tracemalloc.start()
    try:
        TARGETS[target](data)
        assert tracemalloc.get_traced_memory()[1] < _MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("target", "name"), FILES)
def test_every_beginning_passes(target: str, name: str) -> None:
    for part in truncations(_read(target, name), _BEGINNINGS):
        TARGETS[target](part)


@pytest.mark.parametrize(("target", "name"), FILES)
def test_mutations_pass(target: str, name: str) -> None:
    others = [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]
    seed = zlib.crc32(f"{target}/{name}".encode())
    for data in mutations(_read(target, name), others, COUNT, seed):
        try:
            TARGETS[target](data)
        except BaseException:
            print("found with", data)
            raise
