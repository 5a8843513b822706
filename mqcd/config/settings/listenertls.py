"""The settings of TLS with the clients of a listener."""

import pathlib

from mqcd.config.blocks import attribute
from mqcd.config.kinds.fields import YES_NO, FilePath, Listed
from mqcd.core.value import value


@value
class ListenerSslSettings:
    """TLS with the clients of one listener."""

    latent: bool | None = attribute(
        None,
        "Y: clients turn to TLS by STARTTLS; N: TLS from the first octet; must be given with certfile",
        YES_NO,
    )
    mandatory: bool = attribute(False, "before TLS take only EHLO, NOOP, STARTTLS and QUIT", YES_NO)
    certfile: tuple[pathlib.Path, ...] = attribute(
        (),
        "certificates, each with its chain (PEM); by SNI, else the first; none = no TLS",
        Listed(FilePath()),
    )
    keyfile: tuple[pathlib.Path, ...] = attribute(
        (), "their keys, in the same order (PEM); none = in certfile", Listed(FilePath())
    )
    trust: pathlib.Path | None = attribute(
        None,
        "ask clients for certificates (external) that these have signed (PEM); none = do not ask",
        FilePath(),
    )
