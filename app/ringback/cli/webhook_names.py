"""The webhook that an argument names: by its id, or by its owner's name for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from ringback.cli.client_options import ServiceOptions

if TYPE_CHECKING:
    from ringback.client import RingbackClient

T = TypeVar("T")

ID_PREFIXES: Final = ("wh_", "sub_")
"""Ids of registered webhooks, and of subscriptions of MCP clients."""

WebhookName = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook's id, wh_…, or its name.")]


async def find_webhook_id(client: RingbackClient, webhook: str) -> str:
    """The id of the webhook; raises `NotFound` for an unknown name."""
    return webhook if webhook.startswith(ID_PREFIXES) else (await client.named_webhook(webhook)).id


def run_with_webhook(
    options: ServiceOptions, webhook: str, operation: Callable[[RingbackClient, str], Awaitable[T]]
) -> T:
    """Run one operation with a client and the id of the webhook."""

    async def run(client: RingbackClient) -> T:
        return await operation(client, await find_webhook_id(client, webhook))

    return options.run(run)
