"""Events of upstreams that offer MCP Events themselves: their types, and one following for all who want the same events.

    event_catalog     the types that upstreams listed last
    following         reads the events of one type, for arguments, by events/stream or events/poll
    event_frames      the frames of one stream, in their order and without a loss
    event_recorder    the worker: follows what is demanded, and writes events into the logs of the principals that demand them

    demand (stored) ──▶ event_recorder ──▶ a following for each (name, arguments) ──▶ events/stream | events/poll
                                                   │ occurrences, the upstream's cursor
                                  transactions for some principals with demand each: an event, its deliveries; last the cursor

One node follows (`leadership`), on the shared session of the upstream: an event belongs to the upstream, and every principal
that may use the upstream sees it. An upstream with a session for each principal or call (`isolation`) is not followed: its
events may be private to a session.
"""
