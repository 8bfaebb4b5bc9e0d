"""Compares the clock at the start with the last time that an earlier process saved."""

import logging
from datetime import datetime

from ringback.domain.clock import CONTINUED_AHEAD_SECONDS_MAX, Clock, format_iso
from ringback.domain.clock_confirmation import CONFIRMATION_SECONDS

log = logging.getLogger(__name__)


def compare_with_last_process(clock: Clock, last: datetime, *, is_exclusive: bool) -> None:
    """Continue from the last time, or let a clock that is far ahead wait for its confirmation. The log says both.

    On a store of several processes every node follows the database's clock, so there is nothing to continue from.
    """
    if is_exclusive:
        clock.continue_from(last)
    facts = {"last_time": format_iso(last), "clock": format_iso(clock.now())}
    if (last - clock.now()).total_seconds() > CONTINUED_AHEAD_SECONDS_MAX:
        log.warning("clock.far_behind", extra=facts)
    if clock.confirm_after(last):
        log.warning("clock.far_ahead", extra=facts | {"confirmed_after_seconds": CONFIRMATION_SECONDS})
