"""Standard base64 as people paste it: with or without its padding, and otherwise exact."""

import base64


def decode_base64(text: str) -> bytes:
    """The bytes behind `text`; raises ValueError for every character that is not base64's.

    Python's default skips such characters silently. With a url-safe or wrapped text, two libraries would then derive two
    different keys from one secret, and signatures would fail without a reason.
    """
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
