"""The clients of MCP Events: each subscribes to Ringback's events by webhook, with a receiver of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scripts.interop_runs.pins import Ecosystem


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsClient:
    name: str
    title: str
    client: str
    """The client of the catalog whose environment this one uses."""
    driver: str
    ecosystem: Ecosystem = Ecosystem.NPM

    @property
    def environment_name(self) -> str:
        return self.client


EVENT_CLIENTS: Final[Sequence[EventsClient]] = (
    EventsClient(name="events-ai-sdk-7", title="AI SDK 7, MCP Events", client="ai-sdk-7", driver="events_ai_sdk.mjs"),
)
