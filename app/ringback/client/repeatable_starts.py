"""What makes the start of a call repeatable: an idempotency key, and a callback's secret that is in no response.

The service shows a secret that it generates in one response, and for an hour in those to the same request; its earlier versions
did not repeat it. Without the secret no receiver can verify the callbacks. So the client generates it, together with the key:
no earlier start has this key, so the secret is the callback's.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from ringback.client.models import Started
from ringback.signing.secrets import SECRET_BYTES, generate_secret

IDEMPOTENCY_KEY_BYTES: Final = 16

S = TypeVar("S", bound=Started)


class RepeatableStart:
    def __init__(self, idempotency_key: str | None, callback: Any) -> None:
        self.idempotency_key: Final = (
            secrets.token_hex(IDEMPOTENCY_KEY_BYTES) if idempotency_key is None else idempotency_key
        )
        self.callback = callback
        self._secret: str | None = None
        if idempotency_key is None and isinstance(callback, Mapping):
            self._generate_secret(cast("Mapping[str, Any]", callback))

    def with_secret(self, started: S) -> S:
        """The response, with the secret that the client has generated."""
        return started if self._secret is None else started.model_copy(update={"callback_secret": self._secret})

    def _generate_secret(self, callback: Mapping[str, Any]) -> None:
        if callback.get("secret") is None:
            self._secret = generate_secret(secrets.token_bytes(SECRET_BYTES))
            self.callback = {**callback, "secret": self._secret}
