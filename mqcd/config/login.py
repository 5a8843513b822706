"""Who we are to a next hop, and by what TLS: the settings of one relay that are about trust."""

# `setting` is a field specifier: it is meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses
import enum
import pathlib

from mqcd.config.glossed import setting


class Mechanism(enum.Enum):
    """How to log in to a next hop."""

    PLAIN = "plain"
    LOGIN = "login"
    CRAM_MD5 = "cram_md5"
    EXTERNAL = "external"


@dataclasses.dataclass(frozen=True, slots=True)
class Secret:
    """A text that is shown to nobody: not in a log, a listing, or a shown configuration."""

    text: str = dataclasses.field(default="", repr=False)
    from_file: bool = False
    """It stands in a file of its own, not in the configuration."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AuthSettings:
    """Who we are to a next hop (SMTP AUTH)."""

    enabled: bool = setting(False, "log in to this next hop")
    override: Mechanism | None = setting(
        None, "mechanism: plain, login, cram_md5 or external; none = the best that is offered, never external"
    )
    initrsp: bool = setting(True, "plain and external: send the login with the AUTH command")
    cleartext: bool = setting(False, "log in without TLS if the relay offers none, by any mechanism")
    username: str = setting("", "user name")
    password: Secret = setting(Secret(), "password")
    passwordfile: pathlib.Path | None = setting(
        None, "file that holds the password, instead of the element's text", "absolute path"
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SslSettings:
    """TLS with a relay."""

    latent: bool | None = setting(
        None, "Y: TLS by STARTTLS if offered; N: TLS from the start; none = as for all mail"
    )
    mandatory: bool = setting(False, "send nothing without TLS")
    verify: bool | None = setting(
        None,
        "Y: require TLS and a valid certificate that names the relay; N: accept any; "
        "missing = Y if auth is enabled",
    )
    certfile: pathlib.Path | None = setting(
        None, "this server's certificate, with its chain (PEM)", "absolute path"
    )
    keyfile: pathlib.Path | None = setting(
        None, "key of that certificate (PEM); none = in certfile", "absolute path"
    )
