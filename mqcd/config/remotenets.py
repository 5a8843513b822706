"""The client's settings for single networks: each may be left out, and is then as for all."""

# `setting` is a field specifier: it is meant to be called in the class body.
import dataclasses
import ipaddress

from mqcd.config.glossed import setting

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RemoteNetSettings:
    """How mqcd speaks to the next hops of some networks; what is left out is as for all."""

    ip: tuple[Network, ...] = setting((), "addresses and networks of the next hops; must be given")
    announcehost: str = setting("", "host name in EHLO")
    maxpipeline: int | None = setting(None, "commands sent ahead of their replies; 0 or 1 = no pipelining")
    timeout: int | None = setting(None, "time limit for a connection, as in the client's", "milliseconds")
    mindatarate: int | None = setting(None, "assumed rate that extends the timeout, as in the client's")
    ext_chunking: bool | None = setting(None, "send contents by BDAT where it is offered")
    say_helo: bool | None = setting(None, "greet with HELO and never with EHLO")
    fallback_helo: bool | None = setting(None, "try HELO when EHLO is refused")
    send_quit: bool | None = setting(None, "end a connection with QUIT")
    wait_quit: bool | None = setting(None, "wait for the reply to QUIT")
    anonssl: bool | None = setting(None, "use TLS where it is offered")
    tls_mandatory: bool | None = setting(None, "with anonssl: send nothing without TLS")
