"""The story of an operator: of 1,000 webhooks of 50 principals, ten fail. One command and one query find them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal, Scope
from ringback.domain.webhook import Webhook, WebhookState
from tests.support.api_server import serving_api
from tests.support.builders import make_webhook
from tests.support.clock import START
from tests.support.forked_commands import running_forked_command
from tests.support.limits import WAIT_SECONDS
from tests.support.service import ServiceUnderTest

PRINCIPALS: Final = 50
WEBHOOKS: Final = 1_000
FAILING: Final = 10
BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class Crowd:
    """A service with the webhooks of many teams, and its operator's key."""

    url: str
    key: str
    failing: Sequence[Webhook]

    async def run_command(self, *arguments: str, folder: Path) -> tuple[int | None, str, str]:
        options = ("--url", self.url, "--api-key", self.key)
        async with (
            asyncio.timeout(WAIT_SECONDS),
            running_forked_command(*arguments, *options, folder=folder, environment={"NO_COLOR": "1"}) as process,
        ):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


def make_webhooks() -> Sequence[Webhook]:
    """Every hundredth webhook fails; its neighbour failed too, and is disabled."""
    failed = {"last_error": "timeout", "failing_since": START}
    return [
        make_webhook(
            principal=Principal(f"team-{number % PRINCIPALS}"),
            **(failed if number % (WEBHOOKS // FAILING) < 2 else {}),
            state=WebhookState.DISABLED if number % (WEBHOOKS // FAILING) == 1 else WebhookState.ACTIVE,
        )
        for number in range(WEBHOOKS)
    ]


@pytest.fixture
async def crowd(service: ServiceUnderTest) -> AsyncGenerator[Crowd]:
    webhooks = make_webhooks()

    async def insert(tx: Transaction, batch: Sequence[Webhook]) -> None:
        for webhook in batch:
            await tx.webhooks.insert(webhook)

    for first in range(0, WEBHOOKS, BATCH):
        await service.store.write(lambda tx, first=first: insert(tx, webhooks[first : first + BATCH]))
    key = await service.create_api_key("operator", scopes=frozenset({Scope.ADMIN}))
    failing = [each for each in webhooks if each.last_error and each.state is WebhookState.ACTIVE]
    async with serving_api(service.app) as url:
        yield Crowd(url, key, failing)


async def test_one_query_finds_the_ten_failing_webhooks_of_all_principals(
    service: ServiceUnderTest, crowd: Crowd
) -> None:
    headers = {"Authorization": f"Bearer {crowd.key}"}
    async with httpx.AsyncClient(base_url=crowd.url, headers=headers) as operator:
        answer = await operator.get("/v1/webhooks?principal=*&health=failing")

    page: dict[str, Any] = answer.json()
    assert {(each["id"], each["principal"]) for each in page["webhooks"]} == {
        (each.id, each.principal) for each in crowd.failing
    }
    assert page["next_cursor"] is None


async def test_one_command_finds_the_ten_failing_webhooks_of_all_principals(crowd: Crowd, tmp_path: Path) -> None:
    listed = await crowd.run_command("webhooks", "list", "--all-principals", "--failing", "--json", folder=tmp_path)
    of_one = await crowd.run_command("webhooks", "list", "--principal", "team-0", "--failing", folder=tmp_path)

    assert (listed[0], of_one[0]) == (0, 0), listed[2] + of_one[2]
    assert {each["id"] for each in json.loads(listed[1])} == {each.id for each in crowd.failing}
    assert [each.id for each in crowd.failing if each.id in of_one[1]] == [
        each.id for each in crowd.failing if each.principal == "team-0"
    ]
    assert "team-0" in of_one[1]
