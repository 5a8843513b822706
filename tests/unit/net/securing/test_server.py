"""A listener's certificates: by SNI, exchanged while it runs, and what of sessions survives that."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from mqcd.net.securing.server import BadTlsFile, ListenerTls, ServerTlsTerms, peer_identities
from tests.fakes.certificates import Authority

pytestmark = pytest.mark.needs("openssl")
V12 = ssl.TLSVersion.TLSv1_2


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


Session = ssl.SSLSession | None


class Ends:
    """A client's end and the server's, in memory."""

    def __init__(
        self,
        tls: ListenerTls,
        context: ssl.SSLContext,
        name: str | None,
        session: Session = None,
    ) -> None:
        there, here, self._there, self._here = (ssl.MemoryBIO() for _ in range(4))
        self.client = context.wrap_bio(there, self._there, server_hostname=name, session=session)
        self.server = tls.begin(here, self._here)
        self._incoming = there, here

    def shake_hands(self) -> None:
        for _ in range(3):
            for end, outgoing, incoming in (
                (self.client, self._there, self._incoming[1]),
                (self.server, self._here, self._incoming[0]),
            ):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                finally:
                    incoming.write(outgoing.read())
        # Tickets of TLS 1.3 come behind the handshake.
        with pytest.raises(ssl.SSLWantReadError):
            self.client.read(1)

    @property
    def subject(self) -> str:
        """The name of the server's certificate."""
        certificate: dict[str, Any] = dict(self.client.getpeercert() or {})
        return str(dict(pair for part in certificate["subject"] for pair in part)["commonName"])


def client(
    authority: Authority, most: ssl.TLSVersion | None = None, ours: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if most is not None:
        context.maximum_version = most
    if ours is not None:
        context.load_cert_chain(ours)
    context.check_hostname = False
    return context


def listener(*certificates: Path, trust: Path | None = None) -> ListenerTls:
    tls = ListenerTls()
    use(tls, *certificates, trust=trust)
    return tls


def use(tls: ListenerTls, *certificates: Path, trust: Path | None = None) -> None:
    tls.use(tls.load(ServerTlsTerms(certificates=certificates, trust=trust)))


def ends(
    tls: ListenerTls,
    context: ssl.SSLContext,
    name: str | None = "a.test",
    session: Session = None,
) -> Ends:
    made = Ends(tls, context, name, session)
    made.shake_hands()
    return made


@pytest.mark.parametrize(
    ("name", "found"),
    [("a.test", "a"), ("b.test", "b"), ("B.Test", "b"), ("x.b.test", "b"), ("x.x.b.test", "a"),
     ("c.test", "a"), (None, "a")],
)  # fmt: skip
def test_sni_chooses_the_certificate(authority: Authority, name: str | None, found: str) -> None:
    tls = listener(authority.sign("a", "DNS:a.test"), authority.sign("b", "DNS:b.test", "DNS:*.b.test"))
    made = ends(tls, client(authority), name)
    assert made.subject == found
    assert made.server.version() == "TLSv1.3"
    assert tls.certificate(made.server) == made.client.getpeercert(True)


def test_new_files_are_for_new_connections(authority: Authority) -> None:
    first, second = authority.sign("a", "DNS:a.test"), authority.sign("b", "DNS:a.test")
    tls = listener(first)
    old = Ends(tls, client(authority), "a.test")
    first.write_bytes(second.read_bytes())
    use(tls, first)
    assert ends(tls, client(authority)).subject == "b"
    old.shake_hands()
    assert old.server.version() == "TLSv1.3"


def test_the_same_files_are_not_loaded_again(authority: Authority) -> None:
    certificate = authority.sign("a", "DNS:a.test")
    tls = listener(certificate)
    terms = ServerTlsTerms(certificates=[certificate])
    loaded = tls.load(terms)
    tls.use(loaded)
    # As for a file in a directory that only root may enter.
    certificate.rename(certificate.with_suffix(".away"))
    assert tls.load(terms) is loaded


@pytest.mark.parametrize("version", [None, V12])
def test_sessions_resume_after_files_were_exchanged(
    authority: Authority, version: ssl.TLSVersion | None
) -> None:
    tls, context = listener(authority.sign("a", "DNS:a.test")), client(authority, version)
    made = ends(tls, context)
    assert not made.server.session_reused
    use(tls, authority.sign("b", "DNS:a.test"))
    again = ends(tls, context, session=made.client.session)
    assert again.server.session_reused
    # The client knows the old one, the server has the new one: no binding can be made of either.
    assert tls.certificate(again.server) == b""
    assert tls.certificate(ends(tls, context).server) != b""


def test_a_session_of_another_listener_does_not_resume(authority: Authority) -> None:
    certificate, context = authority.sign("a", "DNS:a.test"), client(authority)
    made = ends(listener(certificate), context)
    assert not ends(listener(certificate), context, session=made.client.session).server.session_reused


@pytest.mark.parametrize("version", [None, V12])
def test_a_verified_client_is_verified_again_under_other_trust(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion | None
) -> None:
    certificate = authority.sign("a", "DNS:a.test")
    tls = listener(certificate, trust=authority.certificate)
    context = client(authority, version, authority.sign("me", "email:me@a.test", "DNS:me.test"))
    made = ends(tls, context)
    assert peer_identities(made.server) == ("me@a.test", "me.test")
    again = ends(tls, context, session=made.client.session)
    assert again.server.session_reused
    assert peer_identities(again.server) == ("me@a.test", "me.test")
    (tmp_path / "other").mkdir()
    use(tls, certificate, trust=Authority(tmp_path / "other").certificate)
    anew = Ends(tls, context, "a.test", again.client.session)
    with pytest.raises(ssl.SSLError):
        anew.shake_hands()


def test_the_common_name_stands_where_there_is_no_other(authority: Authority) -> None:
    tls = listener(authority.sign("a", "DNS:a.test"), trust=authority.certificate)
    for own, names in ((authority.sign("me", "IP:192.0.2.1"), ("me",)), (None, ())):
        assert peer_identities(ends(tls, client(authority, ours=own)).server) == names


def test_clients_are_not_asked_without_trust(authority: Authority) -> None:
    tls = listener(authority.sign("a", "DNS:a.test"))
    made = ends(tls, client(authority, ours=authority.sign("me", "email:me@a.test")))
    assert peer_identities(made.server) == ()


def test_versions_before_1_2_are_refused(authority: Authority) -> None:
    context = client(authority)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        Ends(listener(authority.sign("a", "DNS:a.test")), context, "a.test").shake_hands()


def test_without_files_no_handshake_is_done(authority: Authority) -> None:
    with pytest.raises(ssl.SSLError):
        Ends(ListenerTls(), client(authority), "a.test").shake_hands()


@pytest.mark.parametrize("setting", ["certfile", "keyfile", "trust"])
def test_what_cannot_be_loaded_is_named_and_changes_nothing(
    authority: Authority, tmp_path: Path, setting: str
) -> None:
    good, text = authority.sign("a", "DNS:a.test"), tmp_path / "text"
    text.write_text("no certificate")
    tls = listener(good)
    for wrong in (tmp_path / "absent", tmp_path, text):
        files = {"certfile": good, "keyfile": good, "trust": authority.certificate, setting: wrong}
        terms = ServerTlsTerms(
            certificates=[files["certfile"]], keys=[files["keyfile"]], trust=files["trust"]
        )
        with pytest.raises(BadTlsFile, match=str(wrong)) as error:
            tls.load(terms)
        # Whether a key fits is seen where both are loaded.
        assert error.value.setting == ("certfile" if wrong == text and setting == "keyfile" else setting)
    assert ends(tls, client(authority)).subject == "a"


def test_the_exporter_secret_is_the_one_that_the_client_has(authority: Authority, tmp_path: Path) -> None:
    certificate = authority.sign("a", "DNS:a.test")
    tls = ListenerTls()
    tls.use(tls.load(ServerTlsTerms(certificates=[certificate], exports=True)))
    secrets = []
    for number in range(2):
        context = client(authority)
        context.keylog_filename = str(tmp_path / f"keys{number}")
        ends(tls, context)
        secrets.append(tls.exporter_secret().hex())
        assert f" {secrets[-1]}\n" in (tmp_path / f"keys{number}").read_text()
        assert tls.exporter_secret() == b""
    assert len(set(secrets)) == 2


@pytest.mark.parametrize(("exports", "most"), [(False, None), (True, V12)])
def test_no_secret_is_exported_unasked_or_of_an_older_tls(
    authority: Authority, exports: bool, most: ssl.TLSVersion | None
) -> None:
    tls = ListenerTls()
    terms = ServerTlsTerms(certificates=[authority.sign("a", "DNS:a.test")], exports=exports)
    tls.use(tls.load(terms))
    ends(tls, client(authority, most))
    assert tls.exporter_secret() == b""
