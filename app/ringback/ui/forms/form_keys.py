"""Idempotency keys of forms: a form that is sent twice, by a double click or a reload, does its work once."""

import os
from base64 import urlsafe_b64encode
from typing import Final

from ringback.schemas.fields import IDEMPOTENCY_KEY_LENGTH_MAX
from ringback.ui.page_routes import Form

KEY_FIELD: Final = "idempotency_key"
KEY_BYTES: Final = 18


def make_form_key() -> str:
    return f"ui-{urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()}"


def read_form_key(form: Form) -> str:
    """The key of the form; a new one if it has none that REST would accept."""
    key = form.get_text(KEY_FIELD)
    is_valid = key.isascii() and key.isprintable() and 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX
    return key if is_valid else make_form_key()
