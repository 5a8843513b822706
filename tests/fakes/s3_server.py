"""An object store in a process of its own (moto's server), with one bucket."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import cache

from aiobotocore.session import AioSession  # type: ignore[import-untyped]

from mqcd.stores.s3_objects import Objects

BUCKET = "mqcd-tests"
_STARTS_S = 60


class S3Server:
    """On a port of its own on loopback."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        # The client wants keys; this server takes any.
        os.environ.setdefault("AWS_ACCESS_KEY_ID", "tests")
        os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "tests")
        words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._make_bucket()

    def _make_bucket(self) -> None:
        """Wait until it answers."""
        request = urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT")
        request.add_header(
            "Authorization", "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request"
        )
        end = time.monotonic() + _STARTS_S
        while True:
            try:
                urllib.request.urlopen(request).close()
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@cache
def shared_server() -> S3Server:
    """One for all tests of this process: each has a prefix of its own."""
    server = S3Server()
    atexit.register(server.stop)
    return server


@cache
def shared_session() -> AioSession:
    """One for all clients of the tests: each new one reads the description of S3, most of a test's time."""
    return AioSession()


def objects(prefix: str) -> Objects:
    """Those of the bucket, by way of that session."""
    made = Objects(BUCKET, prefix)
    made.make_session = shared_session
    return made


async def make_queue(name: str) -> str:
    """A queue of SQS on the same server; returns its URL."""
    url = shared_server().url
    async with shared_session().create_client("sqs", endpoint_url=url, region_name="us-east-1") as client:
        made = await client.create_queue(QueueName=name)
    return str(made["QueueUrl"])


async def end_leases(prefix: str) -> None:
    """As if all nodes had been gone for a while."""
    async with shared_session().create_client(
        "s3", endpoint_url=shared_server().url, region_name="us-east-1"
    ) as client:
        found = await client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}node/")
        for each in found.get("Contents", ()):
            await client.delete_object(Bucket=BUCKET, Key=each["Key"])
