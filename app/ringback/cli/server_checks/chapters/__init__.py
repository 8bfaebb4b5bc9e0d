"""The cases, one module for each part of the specification, in the order in which a run goes through them.

capability, listing                       what a server declares and lists
poll, occurrences, cursors, stream        events/poll and events/stream
subscribe, ttl, unsubscribe               subscriptions
verification, envelopes, delivery, ssrf   callbacks
errors                                    refusals
"""

from typing import Final

from ringback.cli.server_checks.cases import ServerCase
from ringback.cli.server_checks.chapters import (
    capability,
    cursors,
    delivery,
    envelopes,
    errors,
    listing,
    occurrences,
    poll,
    ssrf,
    stream,
    subscribe,
    ttl,
    unsubscribe,
    verification,
)

CHAPTERS: Final = (
    *(capability.CHAPTER, listing.CHAPTER),
    *(poll.CHAPTER, occurrences.CHAPTER, cursors.CHAPTER),
    stream.CHAPTER,
    *(subscribe.CHAPTER, ttl.CHAPTER, unsubscribe.CHAPTER),
    *(verification.CHAPTER, envelopes.CHAPTER, delivery.CHAPTER, ssrf.CHAPTER),
    errors.CHAPTER,
)

CASES: Final[tuple[ServerCase, ...]] = tuple(case for chapter in CHAPTERS for case in chapter.cases)
