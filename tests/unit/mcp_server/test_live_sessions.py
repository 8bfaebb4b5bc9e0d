"""The sessions in memory are bounded in all and for each principal, and idle ones make room."""

from contextlib import ExitStack

import pytest

from ringback.mcp_server import live_sessions
from ringback.mcp_server.live_sessions import PLACE_BYTES, LiveSession, LiveSessions, count_places

PLACES = 8
OWN_PLACES = 6


class CountedSessions:
    """Sessions that are counted, and the names of those that were unloaded."""

    def __init__(self) -> None:
        self.live = LiveSessions()
        self.unloaded: list[str] = []

    def add(self, principal: str, name: str, *, places: int = 1) -> LiveSession | None:
        """The session; None if there is no room."""

        def unload() -> None:
            self.unloaded.append(name)
            self.live.remove(session)

        session = LiveSession(principal, places, unload)
        return session if self.live.add(session) else None

    def fill(self, principal: str, count: int) -> list[LiveSession]:
        added = [self.add(principal, f"{principal}-{number}") for number in range(count)]
        return [each for each in added if each is not None]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountedSessions:
    monkeypatch.setattr(live_sessions, "PLACES_MAX", PLACES)
    monkeypatch.setattr(live_sessions, "PRINCIPAL_PLACES_MAX", OWN_PLACES)
    return CountedSessions()


def test_a_principal_with_its_share_makes_room_for_itself(counted: CountedSessions) -> None:
    counted.fill("mallory", OWN_PLACES + 3)
    assert counted.unloaded == ["mallory-0", "mallory-1", "mallory-2"]
    assert counted.live.count_places("mallory") == OWN_PLACES


def test_the_principal_with_the_most_places_makes_room_for_others(counted: CountedSessions) -> None:
    counted.fill("bob", 2)
    counted.fill("mallory", OWN_PLACES)
    assert counted.add("carol", "carol-0")
    assert counted.unloaded == ["mallory-0"]
    assert counted.live.count_places() == PLACES


def test_who_needs_more_takes_no_place_of_one_that_has_fewer(counted: CountedSessions) -> None:
    counted.fill("bob", 3)
    counted.fill("mallory", OWN_PLACES)
    assert counted.unloaded == ["mallory-0"]
    assert (counted.live.count_places("bob"), counted.live.count_places("mallory")) == (3, 5)


def test_the_session_that_was_used_last_is_unloaded_last(counted: CountedSessions) -> None:
    first, *_ = counted.fill("mallory", OWN_PLACES)
    with counted.live.use_session(first):
        pass
    counted.fill("mallory", OWN_PLACES - 1)
    assert "mallory-0" not in counted.unloaded[: OWN_PLACES - 1]


def test_no_session_in_use_is_unloaded(counted: CountedSessions) -> None:
    with ExitStack() as in_use:
        for each in counted.fill("mallory", OWN_PLACES):
            in_use.enter_context(counted.live.use_session(each))
        assert counted.add("mallory", "refused") is None
        bob = counted.fill("bob", 2)
        for each in bob:
            in_use.enter_context(counted.live.use_session(each))
        assert counted.add("carol", "refused too") is None
        assert counted.unloaded == []
    assert counted.add("carol", "admitted")
    assert counted.unloaded == [f"mallory-{OWN_PLACES - 1}"]  # the requests of the later ones end first


def test_a_large_session_takes_the_room_of_several(counted: CountedSessions) -> None:
    assert (count_places(0), count_places(PLACE_BYTES - 1), count_places(3 * PLACE_BYTES)) == (1, 1, 4)
    counted.fill("bob", 1)
    counted.fill("mallory", 5)
    assert counted.add("mallory", "large", places=4)
    assert counted.unloaded == ["mallory-0", "mallory-1", "mallory-2"]
    assert counted.live.count_places() == 1 + OWN_PLACES


def test_a_session_that_grows_makes_room_as_a_new_one(counted: CountedSessions) -> None:
    session, *_ = counted.fill("mallory", 3)
    with counted.live.use_session(session):
        assert counted.live.resize(session, 5)
        assert counted.unloaded == ["mallory-1"]
        assert not counted.live.resize(session, OWN_PLACES + 1)
        assert (session.places, counted.live.count_places()) == (5, 5)
        assert counted.live.resize(session, 1)
    assert counted.live.count_places("mallory") == 1


def test_a_session_that_has_ended_is_not_counted(counted: CountedSessions) -> None:
    session, other = counted.fill("mallory", 2)
    with counted.live.use_session(session):
        counted.live.remove(session)
        assert counted.live.resize(session, 4)
    counted.live.remove(session)
    assert counted.live.count_places() == 1
    counted.live.remove(other)
    assert (counted.live.count_places(), counted.live.count_places("mallory")) == (0, 0)
    counted.fill("mallory", OWN_PLACES)
    assert counted.live.count_places() == OWN_PLACES
