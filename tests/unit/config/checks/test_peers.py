"""What clients of a listener, or those of one of its networks, could not fulfil."""

from __future__ import annotations

import pytest

from tests.unit.config.samples import errors

SERVER = "mta/submit/listeners/listener[1]/server"
NETWORK = f"{SERVER}/remotenets/remotenet[1]"
USERS = '<users file="users"/>'


def found(server: str, network: str) -> list[str]:
    """The paths of the errors of a listener with one network."""
    remarks = errors(
        f'<mailserver><mta><submit><listeners><listener interface="127.0.0.1"><server>{server}'
        f'<remotenets><remotenet ip="192.0.2.0/24">{network}</remotenet></remotenets>'
        "</server></listener></listeners></submit></mta></mailserver>"
    )
    return [remark.path for remark in remarks]


@pytest.mark.parametrize(
    ("server", "network", "paths"),
    [
        ("", '<authtypes mandatory="Y"/>', [f"{NETWORK}/authtypes"]),
        ("", "<authtypes>plain</authtypes>", [f"{NETWORK}/authtypes"]),
        ("", '<authtypes mandatory="N">-</authtypes>', []),
        (USERS, '<authtypes mandatory="Y"/>', []),
        (USERS, '<authtypes mandatory="Y">-</authtypes>', [f"{NETWORK}/authtypes"]),
        (USERS + '<authtypes mandatory="Y"/>', "<authtypes>-</authtypes>", [f"{NETWORK}/authtypes"]),
        (USERS + '<authtypes mandatory="Y">-</authtypes>', "", [f"{SERVER}/authtypes"]),
        (USERS, "<authtypes>external</authtypes>", ["mta/submit/listeners/listener[1]/ssl@trust"]),
        ("<authtypes>plain</authtypes>", "", [f"{SERVER}/users@file"]),
    ],
)
def test_logins_of_a_network_need_users(server: str, network: str, paths: list[str]) -> None:
    assert found(server, network) == paths


@pytest.mark.parametrize(
    ("server", "network", "paths"),
    [
        ('<greylist delay="5m" window="5m">Y</greylist>', "", [f"{SERVER}/greylist@window"]),
        ('<greylist delay="5m" window="301s">Y</greylist>', "", []),
        ('<greylist delay="5m" window="5m"/>', "", []),
        ('<greylist delay="5m" window="5m"/>', "<greylist>Y</greylist>", [f"{NETWORK}/greylist@window"]),
        ("", '<greylist delay="48h">Y</greylist>', [f"{NETWORK}/greylist@window"]),
        ("<greylist>Y</greylist>", '<greylist window="1m"/>', [f"{NETWORK}/greylist@window"]),
        ("<greylist>Y</greylist>", '<greylist window="1m">N</greylist>', []),
    ],
)
def test_greylisted_mail_can_come_again_in_time(server: str, network: str, paths: list[str]) -> None:
    assert found(server, network) == paths
