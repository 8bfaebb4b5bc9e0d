"""The names of the promises that the checks look after."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CLOCK_ERROR_MILLISECONDS: Final = 50
"""More than the estimates of two nodes differ."""


class Rule(StrEnum):
    LOST_CALLS = "lost_calls"
    """A call was acknowledged, and never ends."""
    FALSE_OUTCOMES = "false_outcomes"
    """A call ended in another way than its request or its report says, or without a cause."""
    BACKWARD_STEPS = "backward_steps"
    """A final status changed, or the count of runs decreased."""
    SPLIT_KEYS = "split_keys"
    """An idempotency key became two calls."""
    UNSAFE_SECOND_STARTS = "unsafe_second_starts"
    LOST_EVENTS = "lost_events"
    """An event is not in the log, or neither reached a webhook nor is dead."""
    SECOND_EVENTS = "second_events"
    """A call ended twice in the log, or for a webhook."""
    SEQ_HOLES = "seq_holes"
    FALSE_CALLBACKS = "false_callbacks"
    """A callback of something that is not in the log, with another body, or not signed."""
    ORDER = "order"
    """An ordered webhook received a later event first."""
    BROKEN_LEASES = "broken_leases"
    """A node ended the lease of another one, or sent a callback without a lease."""
    SKIPPED_EVENTS = "skipped_events"
    """A reader who follows the log missed an event, or got one twice."""
    LATE_EVENTS = "late_events"
    """A stream got an event long after its commit although nothing was in its way."""
    WRONG_KEYS = "wrong_keys"
    """A valid API key was refused, or one that is no longer valid was accepted."""
    LEFT_KEYS = "left_keys"
    """A stored value is sealed with a key that was rotated out, after all nodes have resealed what is stored."""
    LATE_CALLS = "late_calls"
    """A call waited until its deadline although nothing was in its way."""
    QUOTAS = "quotas"
    """A principal had more open calls than its quota allows, or its counted bytes are not those of its rows."""
    CONCURRENCY = "concurrency"
    """A node had more calls at an upstream at once than its capacity, or one principal had all of its places."""
    WIDE_TOKENS = "wide_tokens"
    """A resume token opened more than its one call for its one principal."""
    CROSSED_CONTROLS = "crossed_controls"
    """A call began at a paused upstream, or was accepted for a drained one."""
    LEFT_DATA = "left_data"
    """An erasure was acknowledged, and something that it erases is still there."""
    IGNORED_ACTIONS = "ignored_actions"
    """A cancellation or redelivery was acknowledged, and did not happen."""
    LEAKS = "leaks"
    """A node that stopped left a task, a permit, a lease or a topic behind."""
    SURPRISES = "surprises"
    """An error that no client should get, or an exception in the log."""


@dataclass(frozen=True, slots=True)
class Violation:
    rule: Rule
    description: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.description}"
