"""The classic servers, from Debian's packages: Postfix, Exim, OpenSMTPD.

Exim and OpenSMTPD exclude Postfix as packages, so `tests/setup` unpacks them below .test/debs.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.bench import servers
from tests.bench.peers.peer import ROOT, SIZE_LIMIT, Peer, Plan, Start, files, shared

_PLACES = (ROOT / ".test/debs", Path("/"))
_NOBODY = 65534


def debian(command: str, name: str) -> Path:
    """A server unpacked by the tests' setup, or installed. Raises LookupError where it is missing."""
    for place in _PLACES:
        if (place / command).exists():
            return place / command
    unpack = f". tests/setup; add_aside {name}"
    subprocess.run(["bash", "-c", unpack], cwd=ROOT, check=False, capture_output=True)
    for place in _PLACES:
        if (place / command).exists():
            return place / command
    raise LookupError(f"no /{command}, and Debian's {name} could not be fetched")


def package(name: str, binary: Path) -> str:
    """Version of a Debian package, installed or unpacked."""
    for archive in (ROOT / ".test/debs/archives").glob(f"{name}_*.deb"):
        return archive.name.split("_")[1].split("-")[0]
    asked = ["dpkg-query", "-W", "-f", "${Version}", name]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("-")[0]


class Postfix(Peer):
    """As tests/bench/relay.py sets it up: transport by table, connections kept on demand."""

    name = "postfix"
    promise = "queue file synced"

    def install(self) -> None:
        """It must be installed: its users and groups are."""
        if shutil.which("postfix") is None or shutil.which("smtp-source") is None:
            raise LookupError("Debian's postfix is not installed (bash tests/run installs it)")

    def version(self) -> str:
        """From postconf."""
        asked = ["postconf", "-d", "-h", "mail_version"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()

    def prepare(self, plan: Plan) -> Start:
        """Files below etc."""
        base = plan.directory
        etc = base / "etc"
        for made in (etc, base / "queue", base / "data"):
            made.mkdir()
        shutil.chown(base / "data", "postfix", "postfix")
        (etc / "main.cf").write_text(servers.MAIN.format(base=base))
        (etc / "transport").write_text(f"* smtp:[127.0.0.1]:{plan.sink}\n")
        (etc / "master.cf").write_text(servers.MASTER.format(port=plan.port, limit=250))
        return Start(["postfix", "-c", str(etc), "start-fg"])

    def waiting(self, plan: Plan, pid: int) -> int:
        """Messages."""
        return sum(files(plan.directory / "queue" / each, "*") for each in ("active", "incoming", "deferred"))


_EXIM = """\
primary_hostname = exim.bench.example
exim_path = {directory}/exim4
exim_user = {user}
exim_group = {user}
keep_environment = LD_LIBRARY_PATH : LD_PRELOAD : NSS_WRAPPER_PASSWD : NSS_WRAPPER_GROUP
spool_directory = {directory}/spool
split_spool_directory
log_file_path = {directory}/%slog
local_interfaces = 127.0.0.1
daemon_smtp_ports = {port}
disable_ipv6
deliver_drop_privilege
host_lookup =
rfc1413_query_timeout = 0s
tls_advertise_hosts =
message_size_limit = {size}
smtp_accept_max = 400
smtp_accept_max_per_connection = 0
smtp_accept_queue_per_connection = 0
smtp_connect_backlog = 400
remote_max_parallel = 20
acl_smtp_rcpt = accept
acl_smtp_data = accept

begin routers
onward:
  driver = manualroute
  route_list = * 127.0.0.1 byname
  self = send
  transport = smtp

begin transports
smtp:
  driver = smtp
  port = {sink}
  allow_localhost
  hosts_avoid_tls = *
  hosts_try_chunking =

begin retry
* * F,2h,15m; F,4d,2h
"""


class Exim(Peer):
    """Delivers each message at once, in a process of its own."""

    name = "exim"
    promise = "content and envelope synced"

    def install(self) -> None:
        """Exim, and libnss-wrapper: it looks up a user of its own by name."""
        debian("usr/sbin/exim4", "exim4-daemon-light")
        self._wrapper()

    def _wrapper(self) -> Path:
        for place in _PLACES:
            for path in place.glob("usr/lib/*/libnss_wrapper.so"):
                return path
        raise LookupError("no libnss_wrapper.so")

    def version(self) -> str:
        """Of the package."""
        return package("exim4-daemon-light", debian("usr/sbin/exim4", "exim4-daemon-light"))

    def prepare(self, plan: Plan) -> Start:
        """Copies of binary and libraries: user nobody may not read those of a home directory."""
        place = plan.directory
        for made in ("spool", "library"):
            (place / made).mkdir()
        shutil.copyfile(debian("usr/sbin/exim4", "exim4-daemon-light"), place / "exim4")
        shared(place / "exim4")
        wrapper = self._wrapper()
        aside = _PLACES[0] in wrapper.parents
        for library in {*wrapper.parent.glob("*.so.*"), wrapper} if aside else {wrapper}:
            shutil.copyfile(library, place / "library" / library.name)
        (place / "passwd").write_text(f"Debian-exim:x:{_NOBODY}:{_NOBODY}::/:/bin/false\n")
        (place / "group").write_text(f"Debian-exim:x:{_NOBODY}:\n")
        (place / "exim.conf").write_text(
            _EXIM.format(directory=place, user=_NOBODY, port=plan.port, sink=plan.sink, size=SIZE_LIMIT)
        )
        for given in (place, place / "spool"):
            shutil.chown(given, _NOBODY, _NOBODY)
        env = {
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(place / "library"),
            "LD_PRELOAD": str(place / "library/libnss_wrapper.so"),
            "NSS_WRAPPER_PASSWD": str(place / "passwd"),
            "NSS_WRAPPER_GROUP": str(place / "group"),
        }
        command = [str(place / "exim4"), "-C", str(place / "exim.conf"), "-bdf", "-oP", str(place / "pid")]
        return Start(command, env, _NOBODY)

    def waiting(self, plan: Plan, pid: int) -> int:
        """Messages."""
        return files(plan.directory / "spool/input", "*-H")


_OPENSMTPD = """\
smtp max-message-size "{size}"
smtp limit max-mails 1000000
smtp limit max-rcpt 1000000
mta max-deferred 1000000
mta limit max-conn-per-host 100
mta limit max-conn-per-route 100
mta limit max-conn-per-source 100
mta limit max-conn-per-connector 100
mta limit max-conn-per-relay 100
mta limit max-conn-per-domain 100
mta limit conn-delay-host 0
mta limit conn-delay-route 0
mta limit conn-delay-source 0
mta limit conn-delay-connector 0
mta limit conn-delay-relay 0
mta limit conn-delay-domain 0
mta limit reconn-delay-route 0
mta limit session-transaction-delay 0
listen on 127.0.0.1 port {port} hostname opensmtpd.bench.example
action "onward" relay host smtp+notls://127.0.0.1:{sink}
match from any for any action "onward"
"""
_IN_NAMESPACE = """\
set -e
mount --make-rprivate /
for name in passwd group; do mount --bind "$1/$name" "/etc/$name"; done
mount --bind "$1/spool" /var/spool
for place in /var/lib /run; do mount -t tmpfs mqcd-bench "$place"; done
mkdir -m 711 /var/spool/smtpd
mkdir -p /var/lib/opensmtpd/empty
exec "$1/smtpd" -d -f "$1/smtpd.conf"
"""


class OpenSmtpd(Peer):
    """Its paths and users are built in, so it runs in a mount namespace of its own."""

    name = "opensmtpd"
    promise = "files written, not synced"

    def install(self) -> None:
        """Only unpacked."""
        debian("usr/sbin/smtpd", "opensmtpd")

    def version(self) -> str:
        """Of the package."""
        return package("opensmtpd", debian("usr/sbin/smtpd", "opensmtpd"))

    def prepare(self, plan: Plan) -> Start:
        """Binary, users and configuration; the spool is a directory of the bench."""
        place = plan.directory
        (place / "spool").mkdir()
        shutil.copyfile(debian("usr/sbin/smtpd", "opensmtpd"), place / "smtpd")
        shared(place / "smtpd")
        passwd, group = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
        for name, number in {"opensmtpd": 64991, "opensmtpq": 64992}.items():
            passwd += f"{name}:x:{number}:{number}::/nonexistent:/bin/false\n"
            group += f"{name}:x:{number}:\n"
        (place / "passwd").write_text(passwd)
        (place / "group").write_text(group)
        conf = place / "smtpd.conf"
        conf.write_text(_OPENSMTPD.format(size=SIZE_LIMIT, port=plan.port, sink=plan.sink))
        conf.chmod(0o600)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return Start(["unshare", "-m", "sh", "-c", _IN_NAMESPACE, "sh", str(place)], env)

    def waiting(self, plan: Plan, pid: int) -> int:
        """Messages: each is a directory."""
        queue = plan.directory / "spool/smtpd/queue"
        return sum(path.name == "message" for path in queue.rglob("message"))
