"""Who is at the other end."""

from __future__ import annotations

import os
import pwd
import socket

from mqcd.net.credentials import NOBODY, peer_uid, user_name


def test_the_kernel_names_the_peer_of_a_unix_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()


def test_a_tcp_peer_has_no_user() -> None:
    with socket.socket() as tcp:
        assert peer_uid(tcp) == NOBODY


def test_a_user_without_a_name_has_its_number() -> None:
    known = {entry.pw_uid for entry in pwd.getpwall()}
    unknown = next(uid for uid in range(54321, 60000) if uid not in known)
    assert (user_name(unknown), user_name(0)) == (str(unknown), "root")
