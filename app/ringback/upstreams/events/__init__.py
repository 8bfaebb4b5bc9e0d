"""Events of upstreams that offer MCP Events themselves: their types, and one following for all who want the same events.

    event_catalog     the types that upstreams listed last
    following         reads the events of one type, for arguments, by events/stream or events/poll
    event_frames      the frames of one stream, in their order and without a loss
    stream_silence    how long a stream may be silent before it counts as dead
    event_recorder    the worker: follows what is demanded, and writes events into the logs of the principals that demand them
    full_logs         the logs for which events are lost, because their principals' quota is used up

    demand (stored) ──▶ event_recorder ──▶ a following for each (name, arguments) ──▶ events/stream | events/poll
                                                   │ occurrences, the upstream's cursor
                                  a transaction for each principal with demand: an event, its deliveries; last the cursor

One node follows (`leadership`), on the shared session of the upstream: an event belongs to the upstream, and every principal
that may use the upstream sees it. An upstream with a session for each principal or call (`isolation`) is not followed: its
events may be private to a session. Neither is one with credentials for each principal:

- Its events, and even its types, may be private to the holder of a token. No two principals could share a following, its cursor
  or its rows in the log, so the limit of 64 followings for an upstream would become 32 for each of a thousand principals.
- Each is an open request for as long as a webhook exists. Connections of such an upstream are opened for use, and one that
  only listens is closed for another principal's call. A following would begin again at each turn, and nothing says how far
  behind it is.
- When a token ends, its owner has to sign in. A call says so to its client; no client waits for a webhook, and its
  owner would see silence instead of an error.

Those principals get `upstream.changed` from connections of their own, and may subscribe at the upstream itself.
"""
