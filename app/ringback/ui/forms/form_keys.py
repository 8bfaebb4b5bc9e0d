"""Idempotency keys of forms: a form that is sent twice, by a double click or a reload, does its work once."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final

from ringback.schemas.fields import IDEMPOTENCY_KEY_LENGTH_MAX
from ringback.ui.page_routes import Form

KEY_FIELD: Final = "idempotency_key"
KEY_BYTES: Final = 18


class FormKeys:
    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes

    def new_key(self) -> str:
        return f"ui-{urlsafe_b64encode(self._random_bytes(KEY_BYTES)).decode()}"

    def read_key(self, form: Form) -> str:
        """The key of the form; a new one if it has none that REST would accept."""
        key = form.get_text(KEY_FIELD)
        is_valid = key.isascii() and key.isprintable() and 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX
        return key if is_valid else self.new_key()
