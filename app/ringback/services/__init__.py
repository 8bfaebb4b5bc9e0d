"""The use cases: one door for every surface.

REST today, MCP and others later, all come through here; no surface talks to the store or to an upstream by itself. A service
method takes the caller first, checks its scope, and does the whole thing or nothing:

    calls       start, read, wait, list, result, cancel
    webhooks    register, read, list, change, remove
    events      poll the log
    deliveries  what was sent, and what came of it
    resume      a token becomes a call, its result and the events since
    keys        API keys, and who presents one
    insights    what can be called, and how the service is doing

What belongs to another principal and what does not exist are told apart nowhere: both are `NotFound` with the same words.
"""
