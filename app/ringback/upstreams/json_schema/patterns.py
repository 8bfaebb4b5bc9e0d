r"""Regular expressions in linear time.

RE2 is linear in the text, where Python's `re` is exponential: `^(a+)+$` takes 2 s for 26 letters and twice as long for each
further letter. RE2 also reads \d and $ as ECMA 262 and JSON Schema do; `re` does not. A pattern that RE2 cannot compile
(look-around, backreferences) is not checked.
"""

from typing import Any, Final, Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - it has none

from ringback.upstreams.json_schema.steps import StepCounter

PATTERN_BYTES_MAX: Final = 256 * 1024
"""The memory limit of RE2 for one pattern; RE2 rejects a pattern that needs more."""
WORK_PER_STEP: Final = 200
"""Instructions times characters. RE2 takes at most 6 ns for each."""
SEARCH_STEPS: Final = 4
"""Of the shortest search."""
KEPT_MAX: Final = 32
"""Compiled patterns of one schema: 8 MiB at most. Others are compiled again."""
COMPILATION_STEPS: Final = 100
"""Of a short pattern, which takes 0.1 ms."""
INSTRUCTIONS_PER_STEP: Final = 5
FAILURE_STEPS: Final = 2_000
"""A pattern that RE2 gives up at the memory limit takes 1 to 3 ms."""

_RE2: Final[Any] = re2


class _Pattern(Protocol):
    programsize: int

    def search(self, text: str) -> object: ...


class Patterns:
    """The compiled patterns of one schema."""

    def __init__(self) -> None:
        self._compiled: dict[str, _Pattern | None] = {}

    def matches(self, pattern: str, text: str, steps: StepCounter) -> bool | None:
        """None if RE2 cannot compile the pattern or read the text."""
        steps.count_text(len(pattern))
        if pattern not in self._compiled:
            steps.count(COMPILATION_STEPS + len(pattern))
            if len(self._compiled) >= KEPT_MAX:
                del self._compiled[next(iter(self._compiled))]
            compiled = self._compiled[pattern] = _compile(pattern)
            steps.count(FAILURE_STEPS if compiled is None else compiled.programsize // INSTRUCTIONS_PER_STEP)
        compiled = self._compiled[pattern]
        if compiled is None:
            return None
        steps.count(SEARCH_STEPS + (16 + compiled.programsize) * len(text) // WORK_PER_STEP)
        try:
            return compiled.search(text) is not None
        except UnicodeEncodeError:  # a lone surrogate
            return None


def _compile(pattern: str) -> _Pattern | None:
    options = _RE2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return cast("_Pattern", _RE2.compile(pattern, options))
    except (_RE2.error, UnicodeEncodeError):
        return None
