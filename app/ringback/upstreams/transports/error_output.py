"""What a child that ended before it served a call wrote to its standard error, for the operator who has to mend it.

Only a session that could not be opened reports it: no call was sent to the child, so the text has no data of a caller. It may
have secrets: the values of the configured variables are masked, and besides the log only the scope `admin` sees it.
"""

from collections.abc import Iterable
from typing import Final

OUTPUT_LINES_MAX: Final = 5
OUTPUT_LENGTH_MAX: Final = 500
"""Characters; the last ones are kept, because a traceback ends with its reason."""
_KEPT_BYTES: Final = 4 * OUTPUT_LENGTH_MAX
"""A character of UTF-8 has at most four bytes."""
_SECRET_LENGTH_MIN: Final = 8
"""Characters. Shorter values are words such as `true`, whose masking would make the text unreadable."""


class ErrorOutput:
    """The end of a child's standard error, and its exit code. `secrets` are masked in it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        lines = [line for secret in secrets for line in secret.splitlines()]
        self._secrets = [line for line in lines if len(line) >= _SECRET_LENGTH_MIN]
        self.exit_code: int | None = None
        """None for a child that the service had to end."""
        self._tail = b""

    def append(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk[-_KEPT_BYTES:])[-_KEPT_BYTES:]

    def describe(self) -> str:
        """One line, without control characters: `exit code 2: ERROR: ACME_TOKEN is not set`. Empty if nothing is known."""
        lines = [_clean(line) for line in self._read_tail().splitlines()]
        text = " | ".join([line for line in lines if line][-OUTPUT_LINES_MAX:])[-OUTPUT_LENGTH_MAX:]
        code = "" if self.exit_code is None else f"exit code {self.exit_code}"
        return ": ".join(part for part in (code, text) if part)

    def _read_tail(self) -> str:
        text = self._tail.decode(errors="replace")
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def add_to(self, error: BaseException) -> None:
        """Attach the description to the error that the end of the child raises."""
        if described := self.describe():
            error.add_note(described)


def find_error_output(error: BaseException) -> str | None:
    """What `ErrorOutput.add_to` attached to the error."""
    notes: list[str] = getattr(error, "__notes__", [])
    return notes[-1] if notes else None


def _clean(line: str) -> str:
    return "".join(character for character in line if character.isprintable()).strip()
