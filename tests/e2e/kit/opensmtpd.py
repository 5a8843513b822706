"""An OpenSMTPD of the test's own: one port on loopback, its files in one directory.

Its paths and its users are built in, so it runs in a mount namespace of its own, where its spool and its
socket lie in memory and the users are known: nobody else sees them, and they are gone with it. Only root may
make one. The package need not be installed (Postfix is, and the two exclude each other), only unpacked.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.e2e.kit.nexthop import NextHop
from tests.e2e.kit.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
_PLACES = (ROOT / ".test/debs/usr/sbin/smtpd", Path("/usr/sbin/smtpd"))

SIZE_LIMIT = 100 << 10

_CONFIGURATION = """\
smtp max-message-size "{size_limit}"
listen on 127.0.0.1 port {port} hostname opensmtpd.test
action "onward" relay host smtp+notls://127.0.0.1:{next_hop}
match from any for domain "closed.test" reject
match from any for any action "onward"
"""

_START = """\
set -e
mount --make-rprivate /
for name in passwd group; do mount --bind "$1/$name" "/etc/$name"; done
for place in /var/spool /var/lib /run; do mount -t tmpfs mqcd-test "$place"; done
mkdir -m 711 /var/spool/smtpd
mkdir -p /var/lib/opensmtpd/empty
exec "$1/smtpd" -d -v -f "$1/smtpd.conf"
"""
_USERS = {"opensmtpd": 64991, "opensmtpq": 64992}


class OpenSmtpd(NextHop):
    """Takes mail on `port` and relays all of it to `next_hop`, a port on loopback.

    It takes nothing for closed.test. It offers DSN, and neither PIPELINING, CHUNKING nor SMTPUTF8; nor TLS,
    since Debian's leaves its key to a process of its own in a way that OpenSSL 3 does not know any more.
    """

    def __init__(self, directory: Path, next_hop: int) -> None:
        super().__init__("OpenSMTPD", directory)
        self.port = free_port()
        directory.chmod(0o755)
        shutil.copyfile(found(), directory / "smtpd")
        (directory / "smtpd").chmod(0o755)
        passwd, group = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
        for name, number in _USERS.items():
            passwd += f"{name}:x:{number}:{number}::/nonexistent:/bin/false\n"
            group += f"{name}:x:{number}:\n"
        (directory / "passwd").write_text(passwd)
        (directory / "group").write_text(group)
        (directory / "smtpd.conf").write_text(
            _CONFIGURATION.format(
                size_limit=SIZE_LIMIT,
                port=self.port,
                next_hop=next_hop,
            )
        )
        (directory / "smtpd.conf").chmod(0o600)

    def start(self) -> None:
        """Start and wait until it listens."""
        start = ["unshare", "-m", "sh", "-c", _START, "sh", str(self._directory)]
        self.launch(start, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

    def listens(self) -> bool:
        """Whether there is a socket: its log does not tell."""
        listening = f"0100007F:{self.port:04X} 00000000:0000 0A"
        return listening in Path("/proc/net/tcp").read_text()


def found() -> Path:
    """OpenSMTPD's binary. Raises LookupError where it is missing or nothing can be mounted."""
    binary = next((place for place in _PLACES if place.exists()), None)
    if binary is None:
        raise LookupError("no OpenSMTPD in .test/debs or installed")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        raise LookupError("no mount namespace may be made here, as OpenSMTPD needs")
    return binary
