"""The use cases. REST, MCP, the extension and the CLI all call these services.

No surface reads the store or calls an upstream by itself. A service method takes the caller first, checks the caller's scope,
and then does everything or nothing. A package imports only from packages below it:

    live > insights > erasures > calls > upstreams | deliveries > logins > webhooks > events > access > limits

Packages:

    calls           start, adopt and report calls; wait for, answer, cancel and resume them; read results
    webhooks        register, change and verify webhooks; subscriptions of MCP clients
    events          poll and follow the event log; publish events; their types
    deliveries      read deliveries, and send them again
    logins          sign in to upstreams and out; calls that wait for a sign-in
    access          API keys, sign-ins to the dashboard, portal links, operators
    upstreams       pause and reload upstreams; aliases of their tools
    limits          quotas, large bodies, and responses that are not read
    insights        read models: upstreams, tools, status and readiness; hour by hour; client sessions
    live            lists that follow what happens, read once for all their viewers

Modules:

    services        all use cases of one service, as its entry points use them
    erasures        erase a call, a session or a principal; erasure_batches: one transaction each
    lookups         find what an id or a key names
    unserved_upstreams  names that no served upstream has
    mcp_sessions    keep legacy MCP sessions
    audit           who changed what
    scans           scans of the store on behalf of one principal
    long_polling    read the store again until a condition holds
    response_hooks  actions that run after a response has been written
    node_signals    hints to other nodes, about what only one node has in memory
    sealing_keys    refuse a start without the keys that sealed stored data
    key_registration  keeps the current key of a running node registered
    lifecycle       refuse new work during a shutdown

A resource of another principal and a resource that does not exist raise the same `NotFound` with the same words.
"""
