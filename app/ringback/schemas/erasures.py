"""Erasures in requests and responses."""

from typing import Self

from pydantic import Field

from ringback.domain.erasure import Erasure, ErasureKind, ErasureState
from ringback.schemas.fields import Instant, QueryParams, ResponseBody


class EraseQuery(QueryParams):
    cancel: bool = Field(
        default=False,
        description="Cancel calls that have not ended, and erase them then. Without it, such a call refuses the request.",
    )


class ErasureView(ResponseBody):
    """A request to erase data, and how far it is."""

    id: str
    kind: ErasureKind
    target: str = Field(description="The call's id, the client_session_id, or the principal.")
    state: ErasureState = Field(
        description="`erasing` continues by itself; `waiting` waits for the end of cancelled calls; `finished` is done."
    )
    requested_at: Instant = Field(description="What is newer stays.")
    finished_at: Instant | None
    calls: int = Field(
        description="Erased calls. Each leaves a tombstone, so that its idempotency key starts no other."
    )
    deliveries: int = Field(
        description="Erased deliveries, with their bodies and attempts. Those that were open are not sent."
    )
    events: int = Field(description="Events of which only an empty stub remains; of a principal, deleted events.")
    webhooks: int

    @classmethod
    def from_erasure(cls, erasure: Erasure) -> Self:
        return cls.model_validate(erasure)
