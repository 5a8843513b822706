"""Who may log in to a Postfix of the tests: as much of Dovecot's authentication protocol as smtpd speaks."""

from __future__ import annotations

import base64
import hmac
import socketserver
import threading

CHALLENGE = b"<1234.5678@sasl.test>"
_GREETING = (
    "VERSION\t1\t1\n"
    "MECH\tPLAIN\tplaintext\n"
    "MECH\tLOGIN\tplaintext\n"
    "MECH\tCRAM-MD5\tdictionary\tactive\n"
    "SPID\t1\nCUID\t1\nCOOKIE\t00112233445566778899aabbccddeeff\nDONE\n"
)


class _Handler(socketserver.StreamRequestHandler):
    server: SaslServer

    def handle(self) -> None:
        self.wfile.write(_GREETING.encode())
        turns: dict[str, tuple[str, list[bytes]]] = {}
        for line in self.rfile:
            words = line.decode().rstrip("\n").split("\t")
            if words[0] not in ("AUTH", "CONT"):
                continue
            number = words[1]
            if words[0] == "AUTH":
                turns[number] = (words[2], [])
                given = [word[5:] for word in words if word.startswith("resp=")]
            else:
                given = words[2:3]
            mechanism, said = turns[number]
            said += [base64.b64decode(each) for each in given]
            self.wfile.write(self._answer(number, mechanism, said).encode())

    def _answer(self, number: str, mechanism: str, said: list[bytes]) -> str:
        asked = {"PLAIN": [b""], "LOGIN": [b"Username:", b"Password:"], "CRAM-MD5": [CHALLENGE]}[mechanism]
        if len(said) < len(asked):
            return f"CONT\t{number}\t{base64.b64encode(asked[len(said)]).decode()}\n"
        user = self.server.user_of(mechanism, said)
        return f"OK\t{number}\tuser={user}\n" if user else f"FAIL\t{number}\treason=wrong\n"


class SaslServer(socketserver.ThreadingTCPServer):
    """Listens on a free port of loopback until `close`."""

    daemon_threads = True

    def __init__(self, users: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._users = users
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port

    def user_of(self, mechanism: str, said: list[bytes]) -> str:
        """Who has logged in; "" when it was nobody."""
        for user, password in self._users.items():
            digest = hmac.new(password.encode(), CHALLENGE, "md5").hexdigest()
            right = {
                "PLAIN": [f"\0{user}\0{password}".encode()],
                "LOGIN": [user.encode(), password.encode()],
                "CRAM-MD5": [f"{user} {digest}".encode()],
            }
            if said == right[mechanism]:
                return user
        return ""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
