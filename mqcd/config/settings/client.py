"""The settings of SMTP to a next hop: the client, its exceptions for networks, login and TLS."""

import pathlib

from mqcd.config.blocks import attribute, many, setting
from mqcd.config.kinds.fields import YES_NO, Choice, Count, Duration, FilePath, Line, Listed
from mqcd.config.kinds.names import HOST_NAME, NetworkKind, SecretKind
from mqcd.config.kinds.values import Mechanism, Network, Secret
from mqcd.core.units import MINUTE
from mqcd.core.value import value


@value
class AuthSettings:
    """The login at a next hop (SMTP AUTH)."""

    enabled: bool = attribute(False, "log in to this next hop", YES_NO)
    override: Mechanism | None = attribute(
        None,
        "mechanism: plain, login, cram_md5 or external; none = the best that is offered, never external",
        Choice(Mechanism),
    )
    initrsp: bool = attribute(True, "plain and external: send the login with the AUTH command", YES_NO)
    cleartext: bool = attribute(
        False, "log in without TLS if the relay offers none, by any mechanism", YES_NO
    )
    username: str = setting("", "user name", Line())
    password: Secret = setting(Secret(), "password", SecretKind())
    passwordfile: pathlib.Path | None = setting(
        None, "file that holds the password, instead of the element's text", FilePath(), at="password@file"
    )


@value
class SslSettings:
    """TLS with a relay."""

    latent: bool | None = attribute(
        None, "Y: TLS by STARTTLS if offered; N: TLS from the start; none = as for all mail", YES_NO
    )
    mandatory: bool = attribute(False, "send nothing without TLS", YES_NO)
    verify: bool | None = attribute(
        None,
        "Y: require TLS and a valid certificate that names the relay; N: accept any; "
        "missing = Y if auth is enabled",
        YES_NO,
    )
    certfile: pathlib.Path | None = attribute(
        None, "this server's certificate, with its chain (PEM)", FilePath()
    )
    keyfile: pathlib.Path | None = attribute(
        None, "key of that certificate (PEM); none = in certfile", FilePath()
    )


@value
class RemoteNetSettings:
    """How mqcd speaks to the next hops of some networks; what is left out is as for all."""

    ip: tuple[Network, ...] = attribute(
        (), "addresses and networks of the next hops; must be given", Listed(NetworkKind()), required=True
    )
    announcehost: str = setting("", "host name in EHLO", HOST_NAME)
    maxpipeline: int | None = setting(
        None, "commands sent ahead of their replies; 0 or 1 = no pipelining", Count()
    )
    timeout: int | None = setting(None, "time limit for a connection, as in the client's", Duration(least=1))
    mindatarate: int | None = setting(
        None, "assumed rate that extends the timeout, as in the client's", Count()
    )
    ext_chunking: bool | None = setting(
        None, "send contents by BDAT where it is offered", YES_NO, at="extCHUNKING"
    )
    say_helo: bool | None = setting(None, "greet with HELO and never with EHLO", YES_NO, at="sayHELO")
    fallback_helo: bool | None = setting(None, "try HELO when EHLO is refused", YES_NO, at="fallbackHELO")
    send_quit: bool | None = setting(None, "end a connection with QUIT", YES_NO, at="sendQUIT")
    wait_quit: bool | None = setting(None, "wait for the reply to QUIT", YES_NO, at="waitQUIT")
    anonssl: bool | None = setting(None, "use TLS where it is offered", YES_NO)
    tls_mandatory: bool | None = setting(
        None, "with anonssl: send nothing without TLS", YES_NO, at="anonssl@mandatory"
    )


@value
class ClientSettings:
    """How mqcd speaks SMTP to the next hop."""

    announcehost: str = setting("", "host name in EHLO; empty = the application's", HOST_NAME)
    maxpipeline: int = setting(25, "commands sent ahead of their replies; 0 or 1 = no pipelining", Count())
    timeout: int = setting(
        MINUTE,
        "time limit for a connection; replies have 2 to 10 times as long (RFC 5321, 4.5.3.2)",
        Duration(least=1),
    )
    mindatarate: int = setting(
        1_000_000,
        "assumed rate, bits a second, that extends the timeout for large messages; 0 = no extension",
        Count(),
    )
    ext_chunking: bool = setting(
        True, "send contents by BDAT where the next hop offers it (RFC 3030)", YES_NO, at="extCHUNKING"
    )
    say_helo: bool = setting(False, "greet with HELO and never with EHLO", YES_NO, at="sayHELO")
    fallback_helo: bool = setting(False, "try HELO when EHLO is refused", YES_NO, at="fallbackHELO")
    send_quit: bool = setting(True, "end a connection with QUIT", YES_NO, at="sendQUIT")
    wait_quit: bool = setting(True, "wait for the reply to QUIT", YES_NO, at="waitQUIT")
    fallback_mx_a: bool = setting(
        False, "when no MX host can be reached, try the domain's own address", YES_NO, at="fallbackMX_A"
    )
    anonssl: bool = setting(
        True, "use TLS if the next hop offers STARTTLS, without checking certificates", YES_NO
    )
    tls_mandatory: bool = setting(
        False, "with anonssl: send nothing without TLS", YES_NO, at="anonssl@mandatory"
    )
    trust: pathlib.Path | None = setting(
        None, "trusted certificates (PEM); none = those of the system", FilePath(), at="trust@file"
    )
    remotenets: tuple[RemoteNetSettings, ...] = many(RemoteNetSettings, "remotenet")
