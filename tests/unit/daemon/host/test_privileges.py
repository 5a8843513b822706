"""The way from root to the server's user, with an operating system that does what root could."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from mqcd.core.errors import ConfigError
from mqcd.daemon.host.privileges import Identity, become_owner, take_identity

ME = pwd.getpwuid(os.geteuid())
NOBODY = pwd.getpwnam("nobody")


class Root(Identity):
    """Is root until it becomes somebody; remembers what it was asked to do."""

    def __init__(self, euid: int = 0, owner: int | None = None) -> None:
        self._euid = euid
        self._owner = owner
        self.did: list[tuple[str, str]] = []

    def euid(self) -> int:
        return self._euid

    def owner(self, path: Path) -> tuple[int, int]:
        return super().owner(path) if self._owner is None else (self._owner, self._owner)

    def become(self, user: pwd.struct_passwd) -> None:
        self.did.append(("become", user.pw_name))

    def give(self, path: Path, user: pwd.struct_passwd) -> None:
        self.did.append((user.pw_name, path.name))


def test_root_gives_away_only_what_it_made(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    system = Root()
    take_identity(NOBODY.pw_name, [tmp_path / "var" / "queue", tmp_path / "var" / "a" / "b"], system)
    assert system.did == [
        (NOBODY.pw_name, "queue"),
        (NOBODY.pw_name, "b"),
        (NOBODY.pw_name, "a"),
        ("become", NOBODY.pw_name),
    ]
    assert (tmp_path / "var" / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_without_a_user_root_stays_root_and_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    system = Root()
    take_identity(None, [tmp_path / "queue"], system)
    assert system.did == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "application/user" in caplog.text
    assert (tmp_path / "queue").is_dir()


def test_who_is_not_root_stays_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    system = Root(euid=ME.pw_uid + 4711)
    take_identity(ME.pw_name, [tmp_path], system)
    assert system.did == []
    assert "only root can become it" in caplog.text


def test_who_is_not_root_needs_no_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    take_identity(None, [tmp_path], Root(euid=4711))
    assert caplog.text == ""


def test_an_unknown_user_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='there is no user "nobody-of-that-name"'):
        take_identity("nobody-of-that-name", [tmp_path / "queue"], Root())
    assert not (tmp_path / "queue").exists()


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"/file"):
        take_identity(None, [tmp_path / "file" / "queue"], Root())


def test_a_file_in_place_of_a_directory_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("")
    with pytest.raises(ConfigError, match="events: not a directory; move away what has its name"):
        take_identity(None, [tmp_path / "events"], Root())


def test_directories_that_may_be_missing_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    system = Root()
    name = NOBODY.pw_name
    take_identity(name, [tmp_path], system, also=[tmp_path / "file" / "audit", tmp_path / "logs" / "audit"])
    assert system.did == [(name, "audit"), (name, "logs"), ("become", name)]


def test_root_makes_nothing_below_the_users_directories(tmp_path: Path) -> None:
    system = Root(owner=NOBODY.pw_uid)
    take_identity(NOBODY.pw_name, [tmp_path / "queue"], system, also=[tmp_path / "logs" / "audit"])
    assert system.did == [("become", NOBODY.pw_name)]
    assert (tmp_path / "queue").is_dir()


def test_a_dangling_link_of_the_users_is_nothing_for_root(tmp_path: Path) -> None:
    (tmp_path / "queue").symlink_to(tmp_path / "elsewhere")
    system = Root(owner=NOBODY.pw_uid)
    with pytest.raises(ConfigError):
        take_identity(NOBODY.pw_name, [tmp_path / "queue"], system)
    assert system.did == [("become", NOBODY.pw_name)]
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(("owner", "name"), [(NOBODY.pw_uid, NOBODY.pw_name), (4_000_123, "4000123")])
def test_root_becomes_the_owner_of_the_queue(tmp_path: Path, owner: int, name: str) -> None:
    root = Root(owner=owner)
    user = become_owner(tmp_path, None, [], root)
    assert user is not None
    assert (user.pw_uid, root.did) == (owner, [("become", name)])


@pytest.mark.parametrize(("euid", "owner"), [(0, 0), (4711, 12345)])
def test_nobody_changes_without_need(tmp_path: Path, euid: int, owner: int) -> None:
    root = Root(euid, owner)
    assert become_owner(tmp_path, ME.pw_name, [], root) is None
    assert root.did == []


def test_a_new_queue_is_made_for_the_configured_user(tmp_path: Path) -> None:
    root = Root()
    queue = tmp_path / "queue"
    assert become_owner(queue, NOBODY.pw_name, [queue], root) == NOBODY
    assert root.did == [(NOBODY.pw_name, "queue"), ("become", NOBODY.pw_name)]


def test_nothing_is_made_without_a_user(tmp_path: Path) -> None:
    assert become_owner(tmp_path / "queue", None, [tmp_path / "queue"], Root()) is None
    assert not (tmp_path / "queue").exists()


def test_no_owner_is_given_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match="link"):
        Identity().give(tmp_path / "link", ME)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("name", ["queue", "way/queue"])
def test_what_a_users_link_leads_to_counts_as_the_users(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret" / "queue").mkdir(parents=True)
    link = tmp_path / name.partition("/")[0]
    link.symlink_to("secret")
    assert Identity().owner(tmp_path / name) == (0, 0), "it is root's own"
    os.lchown(link, NOBODY.pw_uid, NOBODY.pw_gid)
    assert Identity().owner(tmp_path / name) == (NOBODY.pw_uid, NOBODY.pw_gid)
    (tmp_path / "behind").symlink_to(link)
    assert Identity().owner(tmp_path / "behind" / ".." / name) == (NOBODY.pw_uid, NOBODY.pw_gid)


def test_a_way_of_links_in_a_circle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    if os.geteuid() == 0:
        with pytest.raises(OSError, match="links"):
            Identity().owner(tmp_path / "a")
