r"""Regular expressions in linear time.

RE2 is linear in the text, where Python's `re` is exponential: `^(a+)+$` takes 2 s for 26 letters and twice as long for each
further letter. RE2 also reads \d and $ as ECMA 262 and JSON Schema do; `re` does not. A pattern that RE2 cannot compile
(look-around, backreferences) is not checked.

Only whether a pattern matches is asked. The groups of a pattern have no effect on that, so they are compiled as groups that
capture nothing: with captures, RE2 copies all of them at each character and instruction (900 groups and 2,000 characters
took 3.7 s). Groups with names capture all the same, and their number multiplies the steps.
"""

from typing import Any, Final, Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - it has none

from ringback.upstreams.json_schema.steps import StepCounter

PATTERN_BYTES_MAX: Final = 256 * 1024
"""The memory limit of RE2 for one pattern; RE2 rejects a pattern that needs more."""
WORK_PER_STEP: Final = 200
"""Instructions times bytes of UTF-8, for each group that captures and once more. RE2 takes at most 9 ns for each."""
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
    groups: int
    """That a search copies."""

    def search(self, text: bytes) -> object: ...


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
            compiled = self._compiled[pattern] = compile_pattern(pattern)
            steps.count(FAILURE_STEPS if compiled is None else compiled.programsize // INSTRUCTIONS_PER_STEP)
        compiled = self._compiled[pattern]
        if compiled is None:
            return None
        steps.count_text(len(text))
        try:
            encoded = text.encode()
        except UnicodeEncodeError:  # a lone surrogate
            return None
        work = (16 + compiled.programsize) * len(encoded) * (1 + compiled.groups)
        steps.count(SEARCH_STEPS + work // WORK_PER_STEP)
        return compiled.search(encoded) is not None


def compile_pattern(pattern: str) -> _Pattern | None:
    """None if RE2 cannot compile it. Only groups with names capture."""
    options = _RE2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    options.never_capture = True
    try:
        return cast("_Pattern", _RE2.compile(pattern, options))
    except (_RE2.error, UnicodeEncodeError):
        return None
