"""Haraka from npm, python-slimta and aiosmtpd from PyPI, each in a directory of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.peers.peer import CACHE, SIZE_LIMIT, Peer, Plan, Start, files


def _run(command: list[str], directory: Path) -> None:
    """An installer. Raises LookupError with its last line."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise LookupError(f"{command[0]} {command[1]}: {' '.join(last)}")


def pypi(name: str, *packages: str) -> Path:
    """The Python of an environment that has the packages, made if missing."""
    place = CACHE / name
    python = place / "bin/python"
    if not (place / "installed").exists():
        shutil.rmtree(place, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(place)], CACHE)
        _run([str(python), "-m", "pip", "install", "--quiet", *packages], CACHE)
        (place / "installed").touch()
    return python


def pypi_version(python: Path, package: str) -> str:
    """Of an installed package."""
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [str(python), "-c", asked], capture_output=True, text=True, check=True
    ).stdout.strip()


_RELAY_JS = """\
'use strict';
exports.register = function () {
    this.register_hook('rcpt', 'take');
    this.register_hook('get_mx', 'onward');
};
exports.take = (next, connection) => { connection.relaying = true; next(OK); };
exports.onward = (next) => next(OK, { priority: 0, exchange: '127.0.0.1', port: %d });
"""


class Haraka(Peer):
    """Queues every message on disk and sends it to the next hop; one process a processor."""

    name = "haraka"
    promise = "queue file synced, its name not"

    def _package(self) -> Path:
        return CACHE / "haraka/node_modules/haraka"

    def install(self) -> None:
        """By npm, without Haraka's optional plugins."""
        if shutil.which("npm") is None or shutil.which("node") is None:
            raise LookupError("no node and npm (apt-get install nodejs npm)")
        if not self._package().exists():
            place = CACHE / "haraka"
            place.mkdir(parents=True, exist_ok=True)
            (place / "package.json").write_text('{"private": true}')
            _run(["npm", "install", "--no-audit", "--no-fund", "--omit=optional", "haraka"], place)

    def version(self) -> str:
        """From its package."""
        return str(json.loads((self._package() / "package.json").read_text())["version"])

    def prepare(self, plan: Plan) -> Start:
        """A configuration directory as `haraka -i` makes it, as small as it may be."""
        place = plan.directory
        for made in ("config", "plugins", "queue"):
            (place / made).mkdir()
        limits = (self._package() / "config/connection.ini").read_text()
        limits = re.sub(r"(?m)^bytes=.*", f"bytes={SIZE_LIMIT}", limits)
        texts = {
            "config/smtp.ini": f"listen=127.0.0.1:{plan.port}\nnodes=cpus\n",
            "config/outbound.ini": "enable_tls=false\nlocal_mx_ok=true\n",
            "config/connection.ini": limits,
            "config/log.ini": "level=warn\n",
            "config/me": "haraka.bench.example\n",
            "config/plugins": "onward\n",
            "plugins/onward.js": _RELAY_JS % plan.sink,
        }
        for name, text in texts.items():
            (place / name).write_text(text)
        return Start([str(self._package() / "bin/haraka"), "-c", str(place)])

    def waiting(self, plan: Plan, pid: int) -> int:
        """Messages."""
        return files(plan.directory / "queue", "*")


_SLIMTA = """\
from gevent import monkey
monkey.patch_all()
from slimta.edge.smtp import SmtpEdge
from slimta.queue import Queue
from slimta.queue.dict import DictStorage
from slimta.relay.smtp.static import StaticSmtpRelay
relay = StaticSmtpRelay("127.0.0.1", {sink}, pool_size=20, idle_timeout=10, ehlo_as="slimta.bench.example")
queue = Queue(DictStorage(), relay, backoff=lambda envelope, attempts: 900)
queue.start()
edge = SmtpEdge(("127.0.0.1", {port}), queue, max_size={size}, hostname="slimta.bench.example")
edge.start()
edge.get()
"""


class Slimta(Peer):
    """With its storage in memory: the one on disk needs pyaio, which installs on no Python of today."""

    name = "slimta"
    promise = "nothing: the queue is in memory"

    def install(self) -> None:
        """By pip."""
        # gevent finds zope.interface by setuptools' pkg_resources, not the oldest and not the newest.
        pypi(self.name, "python-slimta", "setuptools>=75,<81")

    def version(self) -> str:
        """From its package."""
        return pypi_version(pypi(self.name, "python-slimta"), "python-slimta")

    def prepare(self, plan: Plan) -> Start:
        """A script, as its manual shows one."""
        script = plan.directory / "server.py"
        script.write_text(_SLIMTA.format(sink=plan.sink, port=plan.port, size=SIZE_LIMIT))
        return Start([str(pypi(self.name, "python-slimta")), str(script)])


_AIOSMTPD = """\
import asyncio
from aiosmtpd.handlers import Proxy
from aiosmtpd.smtp import SMTP
async def main():
    def make():
        return SMTP(Proxy("127.0.0.1", {sink}), data_size_limit={size}, hostname="aiosmtpd.bench.example")
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", {port})
    await server.serve_forever()
asyncio.run(main())
"""


class Aiosmtpd(Peer):
    """With its own Proxy handler, which sends each message on before it answers; it has no queue."""

    name = "aiosmtpd"
    promise = "the next hop took it, or it is lost"
    forwards = True

    def install(self) -> None:
        """By pip."""
        pypi(self.name, "aiosmtpd")

    def version(self) -> str:
        """From its package."""
        return pypi_version(pypi(self.name, "aiosmtpd"), "aiosmtpd")

    def prepare(self, plan: Plan) -> Start:
        """A script around the handler."""
        script = plan.directory / "server.py"
        script.write_text(_AIOSMTPD.format(sink=plan.sink, port=plan.port, size=SIZE_LIMIT))
        return Start([str(pypi(self.name, "aiosmtpd")), str(script)])

    def waiting(self, plan: Plan, pid: int) -> int:
        """It has no queue."""
        return 0
