"""The services and settings that page handlers use."""

from collections.abc import Collection
from dataclasses import dataclass

from ringback.api.context import ApiConfig
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.identity.issuer_sign_in import IssuerSignIn
from ringback.services.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class UiContext:
    services: Services
    config: ApiConfig
    sealer: Sealer
    """Seals the cookie of a sign-in that is on its way to the issuer."""
    clock: Clock
    requires_key: bool
    """False while authentication is off: every viewer is then the anonymous principal."""

    issuer_sign_in: IssuerSignIn | None = None
    """None if people sign in with API keys only."""
    portal_origins: Collection[str] = ()
    """Origins whose pages may embed those of a portal link."""

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the dashboard over https."""
        return self.config.public_url.startswith("https:")
