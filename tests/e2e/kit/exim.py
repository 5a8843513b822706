"""An Exim of the test's own: binary, queue, configuration and log in one directory, one port on loopback.

The system's own Exim, if there is one, is neither read nor touched: the binary is copied, which takes its
set-user-id bit off. Exim will not run as root, and looks up a user of its own by name: it runs as whoever
runs the tests, or as nobody in root's place, whom libnss-wrapper gives that name.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.e2e.kit.nexthop import NextHop
from tests.e2e.kit.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
_PLACES = (ROOT / ".test/debs", Path("/"))
"""Where packages may lie: unpacked aside by tests/setup, or installed."""
_NOBODY = 65534

USER, PASSWORD = "relay@mqcd.test", "s3cret of the relay"
SIZE_LIMIT = 3_000_000

_CONFIGURATION = """\
primary_hostname = exim.test
exim_path = {directory}/exim4
exim_user = {uid}
exim_group = {gid}
keep_environment = LD_LIBRARY_PATH : LD_PRELOAD : NSS_WRAPPER_PASSWD : NSS_WRAPPER_GROUP
spool_directory = {directory}/spool
log_file_path = {directory}/%slog
local_interfaces = 127.0.0.1
daemon_smtp_ports = {port}
disable_ipv6
deliver_drop_privilege
host_lookup =
rfc1413_query_timeout = 0s
smtp_enforce_sync
message_size_limit = {size_limit}
dsn_advertise_hosts = *
chunking_advertise_hosts = {chunking}
smtputf8_advertise_hosts = *
pipelining_advertise_hosts = *
tls_advertise_hosts = *
tls_certificate = {chain}
tls_privatekey = {chain}
tls_verify_certificates = {trust}
tls_try_verify_hosts = *
auth_advertise_hosts = ${{if def:tls_in_cipher{{*}}}}
# Else the eleventh message over a kept connection waits for a queue run, and there is none.
smtp_accept_queue_per_connection = 0
log_selector = +smtp_mailauth +received_recipients +tls_cipher
acl_smtp_rcpt = rcpt
acl_smtp_data = accept

begin acl
rcpt:
  # Greylisting: whom it has not seen before is told to come again.
  defer local_parts = ^grey
        !seen = 1h / key=$local_part@$domain
        message = 4.7.1 Greylisted, please come again
  deny  domains = closed.test
        !authenticated = *
        message = 5.7.1 Who are you?
  accept

begin routers
onward:
  driver = manualroute
  route_list = * 127.0.0.1 byname
  self = send
  transport = smtp

begin transports
smtp:
  driver = smtp
  port = {next_hop}
  allow_localhost
  message_linelength_limit = 10000000
  hosts_try_chunking = {chunks_to}
  hosts_avoid_tls = *

begin authenticators
external:
  driver = external
  public_name = EXTERNAL
  server_advertise_condition = ${{if bool{{$tls_in_certificate_verified}}}}
  server_param2 = ${{certextract{{subject,CN}}{{$tls_in_peercert}}}}
  server_condition = ${{if eq{{$auth1}}{{$auth2}}}}
  server_set_id = $auth1
cram:
  driver = cram_md5
  public_name = CRAM-MD5
  server_secret = ${{if eq{{$auth1}}{{{user}}}{{{password}}}fail}}
  server_set_id = $auth1
plain:
  driver = plaintext
  public_name = PLAIN
  server_condition = ${{if and{{{{eq{{$auth2}}{{{user}}}}}{{eq{{$auth3}}{{{password}}}}}}}}}
  server_set_id = $auth2
"""


class Exim(NextHop):
    """Takes mail on `port` and relays all of it to `next_hop`, a port on loopback.

    It offers STARTTLS with the key and certificate in `chain`, and under TLS a login as USER with PASSWORD,
    without which it takes nothing for closed.test. Recipients that begin with grey are greylisted.
    Who shows a certificate that `trust` has signed may log in by it, as the name in its subject.
    `chunking` says to whom it offers CHUNKING: an Exim list, "" = to nobody; `chunks_to` to whom it sends so.
    """

    def __init__(
        self,
        directory: Path,
        next_hop: int,
        chain: Path,
        trust: Path,
        *,
        chunking: str = "*",
        chunks_to: str = "",
    ) -> None:
        super().__init__("Exim", directory, ("mainlog", "paniclog"))
        self.port = free_port()
        root = os.geteuid() == 0
        self._uid, self._gid = (_NOBODY, _NOBODY) if root else (os.geteuid(), os.getegid())
        directory.chmod(0o755)
        for made in (directory / "spool", directory / "library"):
            made.mkdir()
        self._copy_programs()
        (directory / "passwd").write_text(f"Debian-exim:x:{self._uid}:{self._gid}::/:/bin/false\n")
        (directory / "group").write_text(f"Debian-exim:x:{self._gid}:\n")
        private = directory / "chain.pem"
        authority = directory / "trust.pem"
        shutil.copyfile(chain, private)
        shutil.copyfile(trust, authority)
        if root:
            for given in (directory, directory / "spool", private, authority):
                shutil.chown(given, self._uid, self._gid)
        (directory / "exim.conf").write_text(
            _CONFIGURATION.format(
                directory=directory,
                uid=self._uid,
                gid=self._gid,
                port=self.port,
                next_hop=next_hop,
                chain=private,
                trust=authority,
                chunking=chunking,
                chunks_to=chunks_to,
                size_limit=SIZE_LIMIT,
                user=USER,
                password=PASSWORD,
            )
        )

    def _copy_programs(self) -> None:
        """Copies: what lies below a home directory cannot be run by nobody."""
        binary, wrapper = found()
        shutil.copyfile(binary, self._directory / "exim4")
        (self._directory / "exim4").chmod(0o755)
        for library in (
            {*wrapper.parent.glob("*.so.*"), wrapper} if _PLACES[0] in wrapper.parents else {wrapper}
        ):
            shutil.copyfile(library, self._directory / "library" / library.name)

    def start(self) -> None:
        """Start and wait until it says that it listens."""
        place = self._directory
        root = os.geteuid() == 0
        self.launch(
            [str(place / "exim4"), "-C", str(place / "exim.conf"), "-bdf", "-oP", str(place / "pid")],
            {
                "PATH": "/usr/bin:/bin",
                "LD_LIBRARY_PATH": str(place / "library"),
                "LD_PRELOAD": str(place / "library/libnss_wrapper.so"),
                "NSS_WRAPPER_PASSWD": str(place / "passwd"),
                "NSS_WRAPPER_GROUP": str(place / "group"),
            },
            user=self._uid if root else None,
            group=self._gid if root else None,
            extra_groups=() if root else None,
        )

    def listens(self) -> bool:
        return "listening for SMTP" in self.log()


def found() -> tuple[Path, Path]:
    """Exim's binary and libnss-wrapper's library. Raises LookupError where one of them is missing."""
    binary = next(
        (place / "usr/sbin/exim4" for place in _PLACES if (place / "usr/sbin/exim4").exists()), None
    )
    wrapper = next((path for place in _PLACES for path in place.glob("usr/lib/*/libnss_wrapper.so")), None)
    if binary is None or wrapper is None:
        raise LookupError("no exim4 with libnss_wrapper.so in .test/debs or installed")
    return binary, wrapper
