"""Responses about stored results and about the service itself, as frozen values."""

from base64 import b64encode, urlsafe_b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pydantic import Field

from ringback.client.models import ClientModel
from ringback.client.upstream_models import Upstream

ED25519_KEY_BYTES: Final = 32
"""RFC 8032 §5.1.5."""


class ResultInfo(ClientModel):
    """The size and the hash of a stored result."""

    bytes: int
    sha256: str | None = None
    """In hex, of the bytes of `RingbackClient.result_part`."""


class Readiness(ClientModel):
    """The service accepts work."""

    status: str
    degraded: tuple[str, ...] = ()
    """Paths of MCP endpoints that failed and are being restarted. All others are served."""
    roles: Mapping[str, bool] = Field(default_factory=dict[str, bool])
    """The node's roles (api, runner, dispatcher, janitor), and whether each works."""


class ServiceStatus(ClientModel):
    """What one node says about itself and the service."""

    version: str
    time: datetime
    """The node's clock, by which callbacks are signed."""
    public_url: str
    """The URL of the service in callbacks."""
    problem: str | None = None
    """Why the node stores no work; None while it does."""
    roles: Mapping[str, bool] = Field(default_factory=dict[str, bool])
    """The node's roles, and whether the workers of each run."""
    failing_workers: tuple[str, ...] = ()
    failing_endpoints: tuple[str, ...] = ()
    lacks_keys: bool = False
    """Whether other nodes seal with a key that this node does not have."""
    failing_webhooks: int = 0
    """Webhooks of all principals whose last attempt or challenge failed."""
    oldest_due_delivery_age_seconds: float = 0.0
    """How long the oldest due delivery is overdue."""
    upstreams: tuple[Upstream, ...] = ()


class PublicKey(ClientModel):
    """An Ed25519 key that verifies `v1a` signatures: a JSON Web Key (RFC 8037). A later service may have others, too."""

    kty: str
    crv: str = ""
    x: str = ""
    """The key, base64url."""
    kid: str | None = None
    """Its thumbprint (RFC 7638)."""
    use: str | None = None
    alg: str | None = None

    @property
    def text(self) -> str:
        """The key as `whpk_…`, which `ringback.receiver.verify` and other libraries of Standard Webhooks accept.

        Raises ValueError for a key that is not Ed25519's.
        """
        key = urlsafe_b64decode(self.x + "=" * (-len(self.x) % 4))
        if (self.kty, self.crv) != ("OKP", "Ed25519") or len(key) != ED25519_KEY_BYTES:
            raise ValueError(f"The key {self.kid} is not an Ed25519 key.")
        return f"whpk_{b64encode(key).decode('ascii')}"


class ProblemType(ClientModel):
    """The meaning of a problem type."""

    type: str
    title: str
    status: int


class PublicKeySet(ClientModel):
    keys: tuple[PublicKey, ...]
