"""Hosts in network namespaces of their own, each with a cable to one server that can be pulled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import pytest


class Network:
    """A server and `hosts`; packets on a cable that is pulled are lost, in both directions."""

    def __init__(self, hosts: int) -> None:
        """Skips the test where namespaces cannot be made."""
        self._name = f"mqcd{os.getpid()}"
        self._hosts = hosts
        if os.geteuid() != 0 or not self._made(self.server):
            pytest.skip("network namespaces can be made by root alone")
        for host in range(hosts):
            self._connect(host)

    @property
    def server(self) -> str:
        return f"{self._name}-s"

    def host(self, number: int) -> str:
        return f"{self._name}-{number}"

    def server_address(self, host: int) -> str:
        """Where a host finds the server."""
        return f"10.77.{host}.1"

    def inside(self, namespace: str) -> Sequence[str]:
        """How a command begins that runs there."""
        return "ip", "netns", "exec", namespace

    def _made(self, namespace: str) -> bool:
        done = subprocess.run(["ip", "netns", "add", namespace], capture_output=True, check=False)
        return not done.returncode

    def _connect(self, number: int) -> None:
        host, here = self.host(number), f"c{number}"
        _ip("netns", "add", host)
        _ip("-n", self.server, "link", "add", here, "type", "veth", "peer", "name", "c", "netns", host)
        for namespace, cable, address in (
            (self.server, here, f"{self.server_address(number)}/24"),
            (host, "c", f"10.77.{number}.2/24"),
        ):
            _ip("-n", namespace, "address", "add", address, "dev", cable)
            _ip("-n", namespace, "link", "set", cable, "up")

    def pull(self, host: int) -> None:
        """Nothing passes from now on."""
        _ip("-n", self.server, "link", "set", f"c{host}", "down")

    def plug(self, host: int) -> None:
        """Everything passes again."""
        _ip("-n", self.server, "link", "set", f"c{host}", "up")

    def close(self) -> None:
        """Nothing runs in it any more."""
        for namespace in (self.server, *map(self.host, range(self._hosts))):
            _ip("netns", "del", namespace)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
