"""What a running server takes over of a new configuration."""

from dataclasses import replace
from pathlib import Path

from mqcd.config.settings import (
    DeliverSettings,
    DestinationSettings,
    EventsSettings,
    HostPort,
    ListenerSettings,
    QueueSettings,
    RelaySettings,
    ServerSettings,
    Settings,
    SubmitSettings,
)
from mqcd.daemon.changes import compare


def with_listeners(*names: str, port: int = 25, **server: int) -> Settings:
    listeners = tuple(
        ListenerSettings(name=name, port=port, server=ServerSettings(**server))  # type: ignore[arg-type]
        for name in names
    )
    return Settings(submit=SubmitSettings(listeners=listeners))


def test_equal_settings_change_nothing() -> None:
    changes = compare(Settings(), Settings())
    assert (changes.settings, changes.applied, changes.needs_restart) == (Settings(), (), ())


def test_delays_are_taken_over_and_paths_are_not() -> None:
    old = Settings()
    queue = QueueSettings(retry_delays=(1000,), maxclustersize=1)
    changes = compare(old, replace(old, queue=queue))
    assert changes.applied == ("mta/queue/retry_delays",)
    assert changes.needs_restart == ("mta/queue/maxclustersize",)
    assert changes.settings.queue == replace(old.queue, retry_delays=(1000,))


def test_a_reload_takes_event_retention_but_no_new_path() -> None:
    old = Settings()
    events = EventsSettings(maxage=1, maxsize=2, rootpath=Path("/elsewhere"))
    changes = compare(old, replace(old, ops=replace(old.ops, events=events)))
    assert changes.applied == ("ops/events/maxage", "ops/events/maxsize")
    assert changes.needs_restart == ("ops/events/rootpath",)


def test_the_open_database_of_greylisting_needs_a_restart() -> None:
    changes = compare(Settings(), Settings(submit=SubmitSettings(greylist=Path("/elsewhere"))))
    assert (changes.applied, changes.needs_restart) == ((), ("mta/submit/greylist@file",))


def test_a_door_takes_its_server_over_but_not_its_port() -> None:
    changes = compare(with_listeners("a.b", "c"), with_listeners("a.b", "c", port=26, maxrecips=5))
    assert changes.applied == (
        "mta/submit/listeners/listener[a.b]/server/maxrecips",
        "mta/submit/listeners/listener[c]/server/maxrecips",
    )
    assert changes.needs_restart == (
        "mta/submit/listeners/listener[a.b]@port",
        "mta/submit/listeners/listener[c]@port",
    )
    assert [each.port for each in changes.settings.submit.listeners] == [25, 25]


def test_a_new_listener_needs_a_restart_others_reload() -> None:
    changes = compare(with_listeners("a"), with_listeners("a", "b", maxrecips=5))
    assert changes.applied == ("mta/submit/listeners/listener[a]/server/maxrecips",)
    assert changes.needs_restart == ("mta/submit/listeners/listener[b]",)


def test_in_a_list_only_what_changed_is_named() -> None:
    def with_destinations(*entries: DestinationSettings) -> Settings:
        return replace(Settings(), deliver=DeliverSettings(destinations=entries))

    a, b, c = (DestinationSettings(match=f"{name}.example") for name in "abc")
    old = with_destinations(a, b)
    path = "mta/deliver/destinations"
    slower = replace(b, maxserverconnections=1)
    changed = (f"{path}/destination[b.example]@maxserverconnections",)
    assert compare(old, with_destinations(a, slower)).applied == changed
    added = (f"{path}/destination[a.example]", f"{path}/destination[c.example]")
    assert compare(old, with_destinations(b, c)).applied == added
    # Which of two fits first may matter.
    assert compare(old, with_destinations(b, a)).applied == (path,)


def test_relays_of_one_address_are_named_as_a_list() -> None:
    def with_relays(*domains: str) -> Settings:
        relays = tuple(RelaySettings(address=HostPort(host="h", port=25), destdomains=(d,)) for d in domains)
        return replace(Settings(), deliver=DeliverSettings(relays=relays))

    assert compare(with_relays("a", "b"), with_relays("a", "c")).applied == ("mta/deliver/relays",)
    assert compare(with_relays("a"), with_relays("c")).applied == (
        "mta/deliver/relays/relay[h:25]@destdomains",
    )
