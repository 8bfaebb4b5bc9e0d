"""How a number of an upstream, such as its progress, is written for people and models."""

from typing import Final, Literal

_WHOLE_DIGITS: Final = 15
"""As many as each double has: a whole number may be a number of bytes."""
_FRACTION_DIGITS: Final = 10


def format_amount(amount: float, *, separator: Literal["", ","] = "") -> str:
    """The number without a fraction that is 0, and with all its whole digits: `44`, `0.5`, `10737418240`."""
    digits = _WHOLE_DIGITS if float(amount).is_integer() else _FRACTION_DIGITS
    return f"{amount:{separator}.{digits}g}"
