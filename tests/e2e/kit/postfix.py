"""A Postfix of the test's own: queue, data and configuration in one directory, one port on loopback.

The system's own Postfix is neither read nor touched. Needs root, for Postfix changes between users.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.kit.ports import free_port
from tests.e2e.kit.waiting import DEADLINE, Board

_DAEMONS = Path("/usr/lib/postfix/sbin")

_MAIN = """\
compatibility_level = 3.6
queue_directory = {directory}/queue
data_directory = {directory}/data
command_directory = /usr/sbin
daemon_directory = {daemons}
shlib_directory = no
meta_directory = {directory}/conf
maillog_file = /dev/stdout
mail_owner = postfix
setgid_group = postdrop
myhostname = postfix.test
mydestination =
mynetworks = 127.0.0.0/8
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
relayhost = [127.0.0.1]:{next_hop}
alias_maps =
local_recipient_maps =
smtpd_peername_lookup = no
smtp_dns_support_level = disabled
smtpd_client_connection_count_limit = 0
message_size_limit = 0
mailbox_size_limit = 0
# Whatever else would change a message on its way.
local_header_rewrite_clients =
message_drop_headers =
message_strip_characters =
disable_mime_output_conversion = yes
smtp_line_length_limit = 0
line_length_limit = 200000
header_size_limit = 1000000
"""

_MASTER = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""

# What `postfix start` makes where it is missing: here, and nowhere else.
_FILES = """\
$queue_directory:d:root:-:755:uc
$queue_directory/active:d:$mail_owner:-:700:ucr
$queue_directory/bounce:d:$mail_owner:-:700:ucr
$queue_directory/corrupt:d:$mail_owner:-:700:ucr
$queue_directory/defer:d:$mail_owner:-:700:ucr
$queue_directory/deferred:d:$mail_owner:-:700:ucr
$queue_directory/flush:d:$mail_owner:-:700:ucr
$queue_directory/hold:d:$mail_owner:-:700:ucr
$queue_directory/incoming:d:$mail_owner:-:700:ucr
$queue_directory/private:d:$mail_owner:-:700:uc
$queue_directory/maildrop:d:$mail_owner:$setgid_group:730:uc
$queue_directory/public:d:$mail_owner:$setgid_group:710:uc
$queue_directory/pid:d:root:-:755:uc
$queue_directory/saved:d:$mail_owner:-:700:ucr
$queue_directory/trace:d:$mail_owner:-:700:ucr
$data_directory:d:$mail_owner:-:700:uc
"""


_WRAPPED = """\
127.0.0.1:{port} inet n - n - - smtpd
  -o smtpd_tls_wrappermode=yes
"""


class Postfix:
    """Takes mail on `port` and relays all of it to `next_hop`, a port on loopback.

    `more` are parameters for main.cf. With smtpd_tls_chain_files among them `wrapped_port` takes mail over
    connections that begin with TLS.
    """

    def __init__(self, directory: Path, next_hop: int, more: Mapping[str, str] | None = None) -> None:
        more = more or {}
        self.log: Board[str] = Board()
        self.port = free_port()
        self.wrapped_port = free_port()
        self._directory = directory
        conf = directory / "conf"
        for made in (conf, directory / "queue", directory / "data"):
            made.mkdir()
        # Its processes give up root and must still find their way here.
        directory.chmod(0o755)
        shutil.chown(directory / "data", "postfix")
        main = _MAIN.format(directory=directory, daemons=_DAEMONS, next_hop=next_hop)
        usual = [line for line in main.splitlines() if line.partition(" =")[0] not in more]
        lines = [*usual, *(f"{name} = {value}" for name, value in more.items())]
        (conf / "main.cf").write_text("\n".join(lines) + "\n")
        (conf / "postfix-files").write_text(_FILES)
        wrapped = _WRAPPED.format(port=self.wrapped_port) if "smtpd_tls_chain_files" in more else ""
        (conf / "master.cf").write_text(_MASTER.format(port=self.port) + wrapped)
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start and wait until it says that it listens."""
        process = self._process = subprocess.Popen(
            ["/usr/sbin/postfix", "-c", str(self._directory / "conf"), "start-fg"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        try:
            self.log.first(lambda line: "daemon started" in line, "Postfix's start")
        except AssertionError:
            self.stop()
            raise AssertionError("Postfix did not start: " + "".join(self.log.all())) from None

    def _read(self, process: subprocess.Popen[str]) -> None:
        if process.stdout is not None:
            for line in process.stdout:
                self.log.put(line)
        self.log.close()

    def stop(self) -> None:
        """End the master that was started, which ends its processes; then the command that waits for it."""
        process = self._process
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal_master(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(DEADLINE)
                break
        if self._reader is not None:
            self._reader.join(DEADLINE)
        if process.stdout is not None:
            process.stdout.close()

    def _signal_master(self, number: signal.Signals) -> None:
        """The master is a session of its own and writes down its process id."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self._directory / "queue/pid/master.pid").read_text()), number)
