"""Responses for operators and receivers: health, readiness, problem types, and public keys (RFC 7517, RFC 8037)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from ringback.schemas.fields import Instant, ResponseBody
from ringback.schemas.upstreams import UpstreamView


class JwkView(ResponseBody):
    """An Ed25519 key that verifies `v1a` signatures."""

    kty: str = Field(examples=["OKP"])
    crv: str = Field(examples=["Ed25519"])
    x: str = Field(description="The public key, base64url.")
    kid: str = Field(description="The key's thumbprint (RFC 7638).")
    use: str = Field(examples=["sig"])
    alg: str = Field(examples=["EdDSA"])


class JwkSetView(ResponseBody):
    """Newest first. Empty if callbacks carry no `v1a` signature."""

    keys: list[JwkView]

    @classmethod
    def from_keys(cls, keys: Sequence[Mapping[str, Any]]) -> Self:
        return cls(keys=[JwkView.model_validate(key) for key in keys])


class HealthView(ResponseBody):
    status: Literal["ok"] = "ok"


class ReadinessView(ResponseBody):
    status: Literal["ready"] = "ready"
    degraded: list[str] = Field(
        description="Paths of MCP endpoints that failed and are being restarted; all other endpoints and REST are served. "
        "RINGBACK_SECRET_KEYS, while other nodes have a key that this node does not have; they send what it cannot read. "
        "`role runner`, `role dispatcher` or `role janitor`, while work waits for it and no node runs it. `clock`, for some "
        "minutes after a start with a clock that is more than a day ahead."
    )
    roles: dict[str, bool] = Field(
        description="This node's roles (api, runner, dispatcher, janitor), and whether each works.",
        examples=[{"api": True, "runner": True}],
    )


class StatusView(ResponseBody):
    """What one node says about itself and the service."""

    version: str = Field(examples=["0.14.0"])
    time: Instant = Field(description="The node's clock, by which callbacks are signed.")
    public_url: str = Field(description="The URL of the service in callbacks.")
    problem: str | None = Field(
        description="Why the node stores no work: the database, or a shutdown. Null while it does."
    )
    roles: dict[str, bool] = Field(
        description="This node's roles (api, runner, dispatcher, janitor), and whether the workers of each run.",
        examples=[{"api": True, "runner": True}],
    )
    failing_workers: list[str] = Field(description="Background workers that failed and are being restarted.")
    failing_endpoints: list[str] = Field(description="Paths of MCP endpoints that failed and are being restarted.")
    lacks_keys: bool = Field(description="Whether other nodes seal with a key that this node does not have.")
    failing_webhooks: int = Field(
        description="Webhooks of all principals whose last attempt or challenge failed; counted up to 10,000."
    )
    oldest_due_delivery_age_seconds: float = Field(description="How long the oldest due delivery is overdue.")
    upstreams: list[UpstreamView]


class ProblemTypeView(ResponseBody):
    """The meaning of a problem type."""

    type: str
    title: str
    status: int
