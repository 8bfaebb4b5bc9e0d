"""A client that gave up a wait gets its next answers sooner, in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from ringback.mcp_server.client_timeouts import WINDOW_SECONDS_MIN, ClientTimeouts, shorten_window

SECONDS = st.floats(min_value=0, max_value=3600)
CLIENTS = st.tuples(st.sampled_from("abcd"))


@given(window=SECONDS)
def test_a_client_that_never_gave_up_keeps_its_window(window: float) -> None:
    assert shorten_window(window, None) == window


@given(window=SECONDS, gave_up_after=SECONDS)
def test_a_window_becomes_shorter_than_the_time_after_which_the_client_gave_up_or_the_least(
    window: float, gave_up_after: float
) -> None:
    shortened = shorten_window(window, gave_up_after)

    assert shortened <= window
    assert shortened <= max(WINDOW_SECONDS_MIN, 0.7 * gave_up_after)
    assert shortened >= min(window, WINDOW_SECONDS_MIN)


@given(window=SECONDS, shorter=SECONDS, longer=SECONDS)
def test_an_earlier_give_up_never_makes_a_window_longer(window: float, shorter: float, longer: float) -> None:
    shorter, longer = sorted((shorter, longer))

    assert shorten_window(window, shorter) <= shorten_window(window, longer)


@given(records=st.lists(st.tuples(CLIENTS, SECONDS)))
def test_the_shortest_wait_of_each_client_that_may_be_a_time_out_is_remembered(
    records: list[tuple[tuple[str], float]],
) -> None:
    timeouts = ClientTimeouts()
    for client, seconds in records:
        timeouts.record_give_up(client, after_seconds=seconds)

    for client in ({client for client, _ in records}) | {("unseen",)}:
        waits = [seconds for name, seconds in records if name == client and seconds >= WINDOW_SECONDS_MIN]
        assert timeouts.get_shortest_wait(client) == (min(waits) if waits else None)


def test_the_client_unused_the_longest_is_forgotten_first() -> None:
    timeouts = ClientTimeouts(tracked_clients_max=2)
    for name in ("first", "second"):
        timeouts.record_give_up((name,), after_seconds=5)
    timeouts.get_shortest_wait(("first",))

    timeouts.record_give_up(("third",), after_seconds=5)

    assert [timeouts.get_shortest_wait((name,)) for name in ("first", "second", "third")] == [5, None, 5]


def test_waits_that_a_client_does_not_give_up_lengthen_its_windows_until_they_are_the_default_again() -> None:
    timeouts, windows = ClientTimeouts(), list[float]()
    timeouts.record_give_up(("user",), after_seconds=3.0)
    for _ in range(4):
        windows.append(shorten_window(4.0, timeouts.get_shortest_wait(("user",))))
        timeouts.record_wait(("user",), seconds=windows[-1])

    assert windows == [2.0, 3.0, 4.0, 4.0]


def test_a_time_out_is_the_same_each_time_and_lasts_until_a_wait_is_longer() -> None:
    timeouts, client = ClientTimeouts(), ("hasty",)
    for seconds in (5.0, 5.1):
        timeouts.record_give_up(client, after_seconds=seconds)
        timeouts.record_wait(client, seconds=3.0)

    timeouts.record_wait(client, seconds=4.5)
    assert timeouts.get_shortest_wait(client) == 5.1
    timeouts.record_wait(client, seconds=40.0)
    assert shorten_window(45.0, timeouts.get_shortest_wait(client)) == 45.0
