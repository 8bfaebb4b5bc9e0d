"""The files reveal no secrets and no bodies."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ringback.domain.ports import Transaction
from ringback.domain.webhook import WebhookSecret
from ringback.domain.webhook_rows import WebhookPart
from ringback.storage.sqlite.store import SqliteStore
from tests.support.builders import make_delivery, make_webhook

CANARY = "whsec_Q0FOQVJZX0NBTkFSWV9DQU5BUlk"
BODY = b'{"resume_token":"canary.resume.token"}'


async def test_the_files_contain_no_secrets_and_no_bodies(store: SqliteStore, path: Path) -> None:
    webhook = make_webhook(secrets=(WebhookSecret(value=CANARY),), url="https://visible.example/")

    async def work(tx: Transaction) -> None:
        await tx.webhooks.insert(webhook)
        await tx.webhooks.update(
            replace(webhook, secrets=(*webhook.secrets, WebhookSecret(value=CANARY + "A"))), WebhookPart.SECRETS
        )
        await tx.deliveries.insert([make_delivery(webhook_id=webhook.id, body=BODY)])

    await store.write(work)
    files = b"".join(file.read_bytes() for file in path.parent.iterdir())

    assert b"visible.example" in files
    assert CANARY.encode() not in files
    assert b"canary" not in files


@pytest.mark.parametrize(
    "moved",
    [
        "UPDATE webhooks SET secrets = (SELECT secrets FROM webhooks WHERE id = :source) WHERE id = :target",
        "UPDATE bodies SET body = (SELECT body FROM bodies WHERE delivery_id = :source) WHERE delivery_id = :target",
    ],
)
async def test_a_value_sealed_for_one_row_cannot_be_opened_in_another(
    store: SqliteStore, path: Path, moved: str
) -> None:
    webhooks = [make_webhook(), make_webhook()]
    deliveries = [make_delivery(), make_delivery()]
    rows = webhooks if "webhooks" in moved else deliveries

    async def insert(tx: Transaction) -> None:
        for webhook in webhooks:
            await tx.webhooks.insert(webhook)
        await tx.deliveries.insert(deliveries)

    async def unreadable(tx: Transaction) -> bool:
        webhook = await tx.webhooks.get(webhooks[1].id)
        (delivery,) = await tx.deliveries.list_whole([deliveries[1].id], bytes_max=1)
        assert webhook is not None
        return webhook.has_unreadable_secrets or delivery.is_unreadable

    await store.write(insert)
    assert not await store.read(unreadable)
    with closing(sqlite3.connect(path, isolation_level=None)) as thief:
        thief.execute(moved, {"source": rows[0].id, "target": rows[1].id})

    assert await store.read(unreadable)
