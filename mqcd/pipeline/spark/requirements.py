"""What Spark needs here: the packages of the extra `pipeline`, and Java 17 or later.

Java is looked for under JAVA_HOME, else in PATH.

Raises PipelineUnavailable, whose text names the package to install.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from mqcd.core.errors import MqcdError

JAVA_PACKAGE = "default-jre-headless"
"""Debian's name of a Java that Spark runs on."""
_JAVA_LEAST = 17
_NEEDS = {"pyspark": (4, 5), "pyarrow": (15, None), "pandas": (2, 3), "jinja2": (3, None)}
"""Least major version, and the first that is too new: as in the extra `pipeline`."""


class PipelineUnavailable(MqcdError):
    """Spark cannot run here: a package or Java is missing. Fault: the machine's set-up."""


def check_packages(versions: Mapping[str, str] | None = None) -> None:
    """See that the extra is installed, in versions that go together. Raises PipelineUnavailable."""
    for package, (least, beyond) in _NEEDS.items():
        found = _version(package) if versions is None else versions.get(package)
        if found is None:
            raise PipelineUnavailable("mqcd pipeline needs the extra: pip install 'mqcd[pipeline]'")
        major = int(found.split(".", 1)[0])
        if major < least or (beyond is not None and major >= beyond):
            raise PipelineUnavailable(
                f"mqcd pipeline does not work with {package} {found}: pip install 'mqcd[pipeline]'"
            )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def find_java(environ: Mapping[str, str]) -> Path:
    """The home of the Java to use: JAVA_HOME, else that of `java` in PATH. Raises PipelineUnavailable."""
    install = f"install Java {_JAVA_LEAST} or later (Debian: apt-get install {JAVA_PACKAGE})"
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise PipelineUnavailable(f"JAVA_HOME={home} holds no bin/java; correct it, or {install}")
    else:
        found = shutil.which("java", path=environ.get("PATH"))
        if found is None:
            raise PipelineUnavailable(f"mqcd pipeline needs Java: {install}, or set JAVA_HOME")
        java = Path(found).resolve()
    version = java_version(java)
    if version < _JAVA_LEAST:
        raise PipelineUnavailable(f"{java} is Java {version or 'of an unknown version'}: {install}")
    return java.parent.parent


@cache
def java_version(java: Path) -> int:
    """Its major version; 0 when it does not say."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # Until 8 it called itself 1.8.
    said = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)
    return int(said[1]) if said else 0
