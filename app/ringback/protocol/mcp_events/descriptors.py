"""An event type as events/list describes it (mcp-events §2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringback.protocol.mcp_events.names import ALL_DELIVERY_MODES, DeliveryMode


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDescriptor:
    name: str
    description: str
    """For a model: what happens, and when to subscribe."""
    input_schema: Mapping[str, Any] = field(repr=False)
    """A JSON Schema of the arguments. They are strict filters: an event without a value does not match."""
    payload_schema: Mapping[str, Any] = field(repr=False)
    """A JSON Schema of every occurrence's `data`."""
    delivery: tuple[DeliveryMode, ...] = ALL_DELIVERY_MODES
    """Not empty."""
    meta: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        meta = {} if self.meta is None else {"_meta": dict(self.meta)}
        return {
            "name": self.name,
            "description": self.description,
            "delivery": [str(mode) for mode in self.delivery],
            "inputSchema": dict(self.input_schema),
            "payloadSchema": dict(self.payload_schema),
            **meta,
        }
