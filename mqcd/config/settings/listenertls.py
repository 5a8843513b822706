"""The settings of TLS with the clients of a listener."""

# `setting`, `block` and `many` are field specifiers: they are meant to be called in the class body.
# ruff: noqa: RUF009
import dataclasses
import pathlib

from mqcd.config.blocks import setting
from mqcd.config.kinds.fields import YES_NO, FilePath, Listed, Optional


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ListenerSslSettings:
    """TLS with the clients of one listener."""

    latent: bool | None = setting(
        None,
        "Y: clients turn to TLS by STARTTLS; N: TLS from the first octet; must be given with certfile",
        Optional(YES_NO),
        at="@latent",
    )
    mandatory: bool = setting(
        False, "before TLS take only EHLO, NOOP, STARTTLS and QUIT", YES_NO, at="@mandatory"
    )
    certfile: tuple[pathlib.Path, ...] = setting(
        (),
        "certificates, each with its chain (PEM); by SNI, else the first; none = no TLS",
        Listed(FilePath()),
        at="@certfile",
    )
    keyfile: tuple[pathlib.Path, ...] = setting(
        (), "their keys, in the same order (PEM); none = in certfile", Listed(FilePath()), at="@keyfile"
    )
    trust: pathlib.Path | None = setting(
        None,
        "ask clients for certificates (external) that these have signed (PEM); none = do not ask",
        Optional(FilePath()),
        at="@trust",
    )
