"""Names of things at /mcp that are stored."""

import pytest

from ringback.domain.joined_names import JoinedName
from ringback.domain.ports import Store
from ringback.services import joined_names
from ringback.services.joined_names import NAME_LENGTH_MAX, JoinedNames, shortened


async def test_a_name_is_given_once(store: Store) -> None:
    first = JoinedName(kind="tools", name="a__b", upstream="a", original="b!")
    assert await store.write(lambda tx: tx.joined_names.insert(first))
    assert not await store.write(
        lambda tx: tx.joined_names.insert(JoinedName(kind="tools", name="a__b", upstream="a", original="b?"))
    )
    assert await store.write(
        lambda tx: tx.joined_names.insert(JoinedName(kind="prompts", name="a__b", upstream="a", original="b!"))
    )
    assert first in await store.read(lambda tx: tx.joined_names.all())


async def test_names_that_tell_by_themselves_what_they_are_are_not_stored(store: Store) -> None:
    names = JoinedNames(store)
    assert await names.of("tools", [("git", "git_log")]) == ["git__git_log"]
    assert await names.find("tools", "git__git_log") == ("git", "git_log")
    assert await names.find("tools", "git__a__b") == ("git", "a__b")
    assert await store.read(lambda tx: tx.joined_names.all()) == []


async def test_a_cut_name_leads_back_also_for_another_process(store: Store) -> None:
    original = "x" * 100
    (name,) = await JoinedNames(store).of("tools", [("git", original)])
    assert name is not None
    assert len(name) == NAME_LENGTH_MAX
    other = JoinedNames(store)
    assert await other.find("tools", name) == ("git", original)
    assert await other.of("tools", [("git", original)]) == [name]


async def test_a_name_that_another_thing_has_is_not_given_again(store: Store) -> None:
    taken = JoinedName(kind="tools", name=shortened("git", "a.b"), upstream="git", original="something else")
    await store.write(lambda tx: tx.joined_names.insert(taken))
    names = JoinedNames(store)
    assert await names.of("tools", [("git", "a.b"), ("git", "a_b")]) == [None, "git__a_b"]
    assert await names.find("tools", taken.name) == ("git", "something else")


async def test_an_upstream_cannot_fill_the_store_with_names(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_names, "STORED_MAX", 2)
    names = await JoinedNames(store).of("tools", [("git", f"odd.{number}") for number in range(4)])
    assert [name is not None for name in names] == [True, True, False, False]
    assert len(await store.read(lambda tx: tx.joined_names.all())) == 2
