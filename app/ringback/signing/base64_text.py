"""Standard base64, with or without padding, and otherwise strict."""

import base64


def decode_base64(text: str) -> bytes:
    """Decode the text. Raises ValueError for any character outside the standard alphabet.

    Python ignores such characters by default. From a URL-safe or wrapped text, two libraries would then derive different keys,
    and signatures would fail without a visible reason.
    """
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
