"""An MCP server with events of its own: `python order_events.py` serves http://127.0.0.1:8000/mcp.

Any client of MCP Events lists, polls, streams and subscribes to them. They are stored in events.db, beside this process, and so
are subscriptions: after a restart, clients go on from their cursors.

    pip install "ringback[server]"
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from ringback.extension import Events

events = Events.embedded("events.db", dev=True)
"""`dev=True` lets clients without authentication subscribe webhooks of this machine."""


class OrderArguments(BaseModel):
    """What a client may filter by."""

    order_id: str | None = None


@events.type("order.shipped", description="An order has left the warehouse.", arguments=OrderArguments)
class OrderShipped(BaseModel):
    order_id: str
    carrier: str


@events.type("stock.counted", description="The stock was counted.")
class StockCounted(BaseModel):
    parcels: int


async def count_stock(*, interval_seconds: float = 60.0) -> None:
    """Emit from a background task."""
    for parcels in range(1_000):
        await events.emit(StockCounted(parcels=parcels))
        await asyncio.sleep(interval_seconds)


@asynccontextmanager
async def lifespan(server: MCPServer[Any]) -> AsyncGenerator[dict[str, Any]]:
    """A lifespan of the server's own enters that of the events; without one, give MCPServer `lifespan=events.lifespan`."""
    async with events.lifespan(server), asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count_stock())
        yield {}
        counting.cancel()


server = MCPServer[Any]("orders", extensions=[events], lifespan=lifespan)


@server.tool()
async def ship_order(order_id: str, carrier: str = "post") -> str:
    """Ship an order."""
    await events.emit(OrderShipped(order_id=order_id, carrier=carrier))
    return f"Order {order_id} is on its way."


if __name__ == "__main__":
    server.run("streamable-http")
