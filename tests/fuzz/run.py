"""One target under atheris, the coverage-guided fuzzer: `python -m tests.fuzz.run TARGET [OPTION ...]`.

Options are those of libFuzzer, such as -max_total_time=600. Its corpus begins with the committed one; what it
adds goes to a directory that is removed again. A finding is written to the current directory: add it to the
corpus, named after what was wrong.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from pathlib import Path

_CORPUS = Path(__file__).with_name("corpus")


def main(target: str, options: list[str]) -> None:
    """Fuzz until an option says enough."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["mqcd.core", "mqcd.queue", "mqcd.submit"]):
        targets = importlib.import_module("tests.fuzz.targets")
    with tempfile.TemporaryDirectory() as base:
        corpus = shutil.copytree(_CORPUS / target, Path(base) / target)
        atheris.Setup([sys.argv[0], *options, str(corpus)], targets.TARGETS[target])
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
