"""Sign-ins, portal links and the audit log in every kind of store."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ringback.domain.audit import AuditEntry
from ringback.domain.ids import KeyId, PortalLinkId, SignInId
from ringback.domain.portal_links import PortalLink
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal, Scope, Surface
from ringback.domain.sign_ins import SignIn
from ringback.storage.rows import dashboard_access
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

HOUR = timedelta(hours=1)
SIGN_IN = SignIn(
    id=SignInId("signin_1"),
    secret_hash="hash-1",
    principal=ALICE,
    key_id=KeyId("key_1"),
    scopes=frozenset({Scope.READ, Scope.CALLS}),
    upstreams=frozenset({"git"}),
    created_at=START,
    expires_at=START + HOUR,
)
LINK = PortalLink(
    id=PortalLinkId("link_1"),
    secret_hash="hash-1",
    principal=ALICE,
    client_session_id="session-1",
    upstreams=None,
    created_by=ALICE,
    key_id=None,
    created_at=START,
    expires_at=START + HOUR,
)


def entry(owner: Principal | None, target: str, at: datetime = START) -> AuditEntry:
    return AuditEntry(
        seq=0,
        at=at,
        principal=ALICE,
        key_id=KeyId("key_1"),
        surface=Surface.UI,
        operation="change_webhook",
        target=target,
        owner=owner,
        detail="state=active",
    )


async def test_a_sign_in_is_found_by_its_secret_until_it_ends(store: Store) -> None:
    await store.write(lambda tx: tx.sign_ins.insert(SIGN_IN))

    async def find(now: datetime) -> SignIn | None:
        return await store.read(lambda tx: tx.sign_ins.find_by_hash("hash-1", now=now))

    found = await find(START)
    after_expiry = await find(SIGN_IN.expires_at)
    await store.write(lambda tx: tx.sign_ins.delete("hash-1"))

    assert found == SIGN_IN
    assert after_expiry is None
    assert await find(START) is None


async def test_the_oldest_sign_ins_of_one_principal_and_expired_ones_are_removed(store: Store) -> None:
    async def insert(tx: Transaction) -> None:
        for number in range(4):
            sign_in = replace(SIGN_IN, id=SignInId(f"signin_{number}"), secret_hash=f"hash-{number}")
            await tx.sign_ins.insert(replace(sign_in, principal=BOB if number == 0 else ALICE))
        await tx.sign_ins.remove_oldest(ALICE, kept=2)

    await store.write(insert)
    left = [
        number
        for number in range(4)
        if await store.read(lambda tx, number=number: tx.sign_ins.find_by_hash(f"hash-{number}", now=START))
    ]

    assert left == [0, 2, 3]
    assert await store.write(lambda tx: tx.sign_ins.remove_expired(now=START, limit=10)) == 0
    assert await store.write(lambda tx: tx.sign_ins.remove_expired(now=START + HOUR, limit=2)) == 2


async def test_links_are_listed_counted_found_and_removed(store: Store) -> None:
    async def insert(tx: Transaction) -> None:
        for number in range(5):
            link = replace(LINK, id=PortalLinkId(f"link_{number}"), secret_hash=f"hash-{number}")
            await tx.portal_links.insert(replace(link, principal=BOB if number == 4 else ALICE))

    await store.write(insert)

    async def read(tx: Transaction) -> tuple[object, ...]:
        first = await tx.portal_links.list_page(ALICE, position=None, limit=3)
        rest = await tx.portal_links.list_page(ALICE, position=first.next_position, limit=3)
        everybody = await tx.portal_links.list_page(None, position=None, limit=10)
        found = await tx.portal_links.find_by_hash("hash-1", now=START)
        expired = await tx.portal_links.find_by_hash("hash-1", now=START + HOUR)
        counts = [await tx.portal_links.count(ALICE, limit=limit) for limit in (2, 10)]
        return [link.id for link in first], [link.id for link in rest], len(everybody), found, expired, counts

    assert await store.read(read) == (["link_3", "link_2", "link_1"], ["link_0"], 5, LINK, None, [2, 4])
    assert await store.write(lambda tx: tx.portal_links.delete(LINK.id))
    assert not await store.write(lambda tx: tx.portal_links.delete(LINK.id))
    assert await store.write(lambda tx: tx.portal_links.remove_expired(now=START + HOUR, limit=10)) == 4


async def test_the_links_of_one_session_of_one_principal_are_deleted_up_to_a_time(store: Store) -> None:
    async def insert(tx: Transaction) -> None:
        links = [{}, {}, {"client_session_id": None}, {"client_session_id": "session-2"}, {"principal": BOB}]
        for number, over in enumerate([*links, {"created_at": START + HOUR}]):
            identity = {"id": PortalLinkId(f"link_{number}"), "secret_hash": f"hash-{number}"}
            await tx.portal_links.insert(replace(LINK, **identity, **over))

    async def delete(tx: Transaction) -> int:
        return await tx.portal_links.delete_of_session(ALICE, "session-1", until=START, limit=1)

    await store.write(insert)

    assert [await store.write(delete) for _ in range(3)] == [1, 1, 0]
    left = await store.read(lambda tx: tx.portal_links.list_page(None, position=None, limit=10))
    assert [link.id for link in left] == ["link_5", "link_4", "link_3", "link_2"]


async def test_the_audit_log_is_read_by_owner_newest_first_and_loses_what_is_old(store: Store) -> None:
    async def append(tx: Transaction) -> None:
        for number in range(3):
            await tx.audit_entries.append(entry(ALICE, f"wh_{number}", at=START + number * HOUR))
        await tx.audit_entries.append(entry(BOB, "wh_bob", at=START + 3 * HOUR))
        await tx.audit_entries.append(replace(entry(None, "git", at=START + 3 * HOUR), principal=None, key_id=None))

    await store.write(append)

    async def targets(owner: Principal | None, position: int | None = None, limit: int = 10) -> list[str | None]:
        page = await store.read(lambda tx: tx.audit_entries.list_page(owner, position=position, limit=limit))
        return [each.target for each in page]

    first = await store.read(lambda tx: tx.audit_entries.list_page(ALICE, position=None, limit=2))

    assert replace(first[0], seq=0) == entry(ALICE, "wh_2", at=START + 2 * HOUR)
    assert await targets(ALICE, first.next_position) == ["wh_0"]
    assert await targets(None) == ["git", "wh_bob", "wh_2", "wh_1", "wh_0"]
    assert await store.write(lambda tx: tx.audit_entries.remove(cutoff=START + 2 * HOUR, limit=1)) == 1
    assert await store.write(lambda tx: tx.audit_entries.remove(cutoff=START + 2 * HOUR, limit=10)) == 1
    assert await targets(ALICE) == ["wh_2"]


async def test_an_owner_with_too_many_entries_loses_its_oldest_and_no_other_owner_loses_any(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that changed its webhook in a loop filled the disk within the retention."""
    monkeypatch.setattr(dashboard_access, "AUDIT_ENTRIES_MAX", 3)

    async def append(owner: Principal | None, target: str) -> None:
        await store.write(lambda tx: tx.audit_entries.append(entry(owner, target, at=START)))

    await append(BOB, "wh_bob")
    await append(None, "git")
    for number in range(9):
        await append(ALICE, f"wh_{number}")

    page = await store.read(lambda tx: tx.audit_entries.list_page(None, position=None, limit=20))
    assert [each.target for each in page] == ["wh_8", "wh_7", "wh_6", "git", "wh_bob"]
