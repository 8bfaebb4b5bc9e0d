"""The event log: poll and follow it, publish events, and know their types.

    events           poll the event log
    event_polls      the same as MCP Events do: from now on, with a maximum age, and without errors about cursors
    event_streams    follow it, over REST and as MCP Events do, on one reader for each log (`log_tails`)
    event_lookups    read single events, and the latest
    event_publishing  publish events of clients
    event_types      the types of events besides Ringback's own, and the demand for those of upstreams
    event_demands    the demand for events that are recorded only while a principal wants them
    change_demands   polls and streams that demand changes of upstreams
    event_errors     the service's errors as errors of MCP Events

Events are written by `notifier.recorder`, in the transaction of what has happened.
"""
