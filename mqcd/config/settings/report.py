"""The settings of delivery status notifications."""

from mqcd.config.blocks import setting
from mqcd.config.kinds.fields import YES_NO, Count, Duration, Line, Listed, Size, Text
from mqcd.config.kinds.names import HOST_NAME, MAIL_ADDRESS, REDIRECT
from mqcd.config.settings.logs import AuditSettings
from mqcd.core.units import HOUR, KIB
from mqcd.core.value import value


@value
class ReportSettings(AuditSettings):
    """Mail back: delivery status notifications."""

    generate_ndr: bool = setting(
        True, "send reports on bounces, and on success and delay if asked for; N = no reports", YES_NO
    )
    ndr_recip_redirect: str | None = setting(
        None,
        "address that gets the reports instead of the sender; . = no address; none = the sender",
        REDIRECT,
    )
    ndr_recips_additional: tuple[str, ...] = setting(
        (), "addresses that get each report as well", Listed(MAIL_ADDRESS)
    )
    announcemta: str = setting("", "host name in the report; empty = the application's", HOST_NAME)
    ndr_from: str = setting(
        "",
        "From of the report; empty = postmaster@ and the application's name without its first label",
        MAIL_ADDRESS,
    )
    ndr_subject: str = setting("Delivery Failure Report", "Subject of the report", Line())
    ndr_textpart: str = setting(
        "", "text for people, tokens %PRODNAME% and %REPMTA%; empty = the server's own", Text()
    )
    delay_warning: int = setting(
        4 * HOUR, "age at which senders get a delay report if they asked for it; 0 = never", Duration()
    )
    warn_all: bool = setting(
        False,
        "also send it to senders that did not say which reports they want",
        YES_NO,
        at="delay_warning@all",
    )
    attachmsg: int = setting(
        4 * KIB, "octets of the failed message that the report includes; 0 = none", Size()
    )
    attachmsg_full: int = setting(
        256 * KIB,
        "the same for senders that asked for the whole message (RET=FULL), if more than attachmsg,"
        " and that not 0",
        Size(),
        at="attachmsg@full",
    )
    queuecache: int = setting(
        100,
        "bounces read at a time, and reports made at a time; at most maxmemoryqueue counts",
        Count(least=1),
    )
