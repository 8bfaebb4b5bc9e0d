"""Names of things at /mcp that are stored."""

import pytest

from ringback.domain.ports import Store
from ringback.domain.upstream_rows import ToolAlias
from ringback.services.upstreams import tool_aliases as joined_names
from ringback.services.upstreams.tool_aliases import ALIAS_LENGTH_MAX, ToolAliases, shorten_alias


async def test_a_name_is_given_once(store: Store) -> None:
    first = ToolAlias(kind="tools", name="a__b", upstream="a", original="b!")
    assert await store.write(lambda tx: tx.tool_aliases.insert(first))
    assert not await store.write(
        lambda tx: tx.tool_aliases.insert(ToolAlias(kind="tools", name="a__b", upstream="a", original="b?"))
    )
    assert await store.write(
        lambda tx: tx.tool_aliases.insert(ToolAlias(kind="prompts", name="a__b", upstream="a", original="b!"))
    )
    assert first in await store.read(lambda tx: tx.tool_aliases.list_all())


async def test_names_that_encode_their_upstream_are_not_stored(store: Store) -> None:
    names = ToolAliases(store)
    assert await names.assign_aliases("tools", [("git", "git_log")]) == ["git__git_log"]
    assert await names.resolve_alias("tools", "git__git_log") == ("git", "git_log")
    assert await names.resolve_alias("tools", "git__a__b") == ("git", "a__b")
    assert await store.read(lambda tx: tx.tool_aliases.list_all()) == []


async def test_a_cut_name_leads_back_also_for_another_process(store: Store) -> None:
    original = "x" * 100
    (name,) = await ToolAliases(store).assign_aliases("tools", [("git", original)])
    assert name is not None
    assert len(name) == ALIAS_LENGTH_MAX
    other = ToolAliases(store)
    assert await other.resolve_alias("tools", name) == ("git", original)
    assert await other.assign_aliases("tools", [("git", original)]) == [name]


async def test_an_original_with_u_0000_gets_no_alias_and_leaves_the_others_theirs(store: Store) -> None:
    given = await ToolAliases(store).assign_aliases("tools", [("git", "a\0b"), ("git", "a.b"), ("git", "a_b")])

    assert given == [None, shorten_alias("git", "a.b"), "git__a_b"]


async def test_a_name_that_another_thing_has_is_not_given_again(store: Store) -> None:
    taken = ToolAlias(kind="tools", name=shorten_alias("git", "a.b"), upstream="git", original="something else")
    await store.write(lambda tx: tx.tool_aliases.insert(taken))
    names = ToolAliases(store)
    assert await names.assign_aliases("tools", [("git", "a.b"), ("git", "a_b")]) == [None, "git__a_b"]
    assert await names.resolve_alias("tools", taken.name) == ("git", "something else")


async def test_an_upstream_cannot_fill_the_store_with_names(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_names, "STORED_ALIASES_MAX", 4)
    names = await ToolAliases(store).assign_aliases("tools", [("git", f"odd.{number}") for number in range(4)])
    assert [name is not None for name in names] == [True, True, False, False]
    assert len(await store.read(lambda tx: tx.tool_aliases.list_all())) == 2


async def test_an_upstream_with_many_odd_names_leaves_room_for_those_of_others_and_is_logged_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(joined_names, "STORED_ALIASES_MAX", 4)
    aliases, odd = ToolAliases(store), [("odd", f"name.{number}") for number in range(6)]
    given = await aliases.assign_aliases("tools", [*odd, ("git", "a.b")])

    async def refuse(*_: object) -> None:
        raise AssertionError("a list whose names have no room writes nothing")

    monkeypatch.setattr(store, "write", refuse)
    assert await aliases.assign_aliases("tools", [*odd, ("git", "a.b")]) == given
    assert [name is not None for name in given] == [True, True, False, False, False, False, True]
    assert await ToolAliases(store).assign_aliases("tools", [*odd, ("git", "a.b")]) == given
    logged = [record.__dict__["joined_name"] for record in caplog.records if record.getMessage() == "joined.no_name"]
    assert logged[:4] == [shorten_alias(*each) for each in odd[2:]]
    assert len(logged) == 8, "each node writes each name once"
