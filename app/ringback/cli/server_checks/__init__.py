"""`ringback check-server`: checks any MCP server that offers Events, as a client that reads every byte.

    run ───────── opens connections and the endpoint for callbacks, runs the cases, ends its subscriptions
     │
    chapters/ ─── the cases: an id, MUST or SHOULD, the expectation, its source, and a coroutine
     │
     ├── polling, streaming, subscribing, delivering    observations: a request or a round of them, made once in a run
     ├── rules                                          codes of errors, occurrences: what several chapters share
     │
    subject ───── the server under test: the chosen event type, what was observed, the keys to unsubscribe
     │
     ├── connection, sse       JSON-RPC over streamable HTTP in both eras, without an SDK
     ├── message_stream        … replies, and the frames of a stream with the time of each
     ├── callbacks             the callbacks of a run: URL, secret, scripted responses, received requests
     ├── callback_endpoint     … their HTTP server on the loopback address
     ├── emitters              how an event is made to happen
     └── arguments             valid and mistyped arguments from a schema

A case reads observations, so that twenty cases about deliveries need one event and not twenty. An observation that fails is
graded by the case about it; the others become untestable.

Nothing here imports Ringback's own names, codes or schemas of Events: a checker that shares them with a server cannot find
where they are wrong. Ids are those of the official conformance suite's scenarios for Events where it has the same check.
"""
