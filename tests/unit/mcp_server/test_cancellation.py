"""What is remembered of requests is limited for each principal, and the requests of one displace no requests of another."""

from ringback.domain.principal import Principal
from ringback.mcp_server.cancellation import EntriesByPrincipal, RequestKey

ALICE, BOB = Principal("alice"), Principal("bob")


def make_key(name: str, principal: Principal = ALICE) -> RequestKey:
    return RequestKey(principal, "", name)


def test_the_oldest_entry_of_a_principal_is_dropped_and_no_entry_of_another() -> None:
    entries = EntriesByPrincipal[int](2)
    entries.put(make_key("first", BOB), 0)
    for number in range(3):
        entries.put(make_key(str(number)), number)

    assert [entries.get(make_key(str(number))) for number in range(3)] == [None, 1, 2]
    assert entries.get(make_key("first", BOB)) == 0


def test_an_entry_is_taken_out_once() -> None:
    entries = EntriesByPrincipal[int](2)
    entries.put(make_key("a"), 1)

    assert [entries.pop(make_key("a")), entries.pop(make_key("a")), entries.pop(make_key("a", BOB))] == [1, None, None]
