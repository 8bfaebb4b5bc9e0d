"""Text that clients choose, as every door takes it."""


def require_printable(text: str) -> str:
    """The same text; raises `ValueError` for control characters and line breaks, which would steer logs and screens."""
    if not text.isprintable():
        raise ValueError("Use printable characters only: no control characters, no line breaks.")
    return text
