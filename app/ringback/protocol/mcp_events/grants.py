"""How long a subscription is granted (mcp-events §6, TTL).

ttlMs omitted    the server's default, which is finite
a number         at most the number, at least the server's shortest grant: no number is refused
null             no expiry, if the server offers it, else its longest grant. Nothing else gets `refreshBefore: null`
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

HOUR_SECONDS: Final = 3600.0
DAY_SECONDS: Final = 24 * HOUR_SECONDS


class TtlRequest(Enum):
    """What a request asks for if it names no number of seconds."""

    SERVER_DEFAULT = auto()
    NO_EXPIRY = auto()


RequestedTtl = float | TtlRequest
"""Seconds, or one of the requests without a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlPolicy:
    """In seconds. The specification recommends minutes to about a day."""

    default_seconds: float = DAY_SECONDS
    shortest_seconds: float = 300.0
    """A shorter grant would have a client spend its time on refreshes."""
    longest_seconds: float = 7 * DAY_SECONDS
    grants_no_expiry: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.shortest_seconds <= self.default_seconds <= self.longest_seconds:
            raise ValueError("A TTL policy needs 0 < shortest <= default <= longest.")


def grant_ttl(requested: RequestedTtl, policy: TtlPolicy) -> float | None:
    """The granted seconds; None for no expiry."""
    if requested is TtlRequest.SERVER_DEFAULT:
        return policy.default_seconds
    if requested is TtlRequest.NO_EXPIRY:
        return None if policy.grants_no_expiry else policy.longest_seconds
    return min(max(requested, policy.shortest_seconds), policy.longest_seconds)
