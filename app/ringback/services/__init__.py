"""The use cases. REST, MCP, the extension and the CLI all call these services.

No surface reads the store or calls an upstream by itself. A service method takes the caller first, checks the caller's scope,
and then does everything or nothing.

    calls           start, read, list, join and cancel calls; wait for them; read results
    call_starts     the checks of a start, and its part of the transaction
    given_up_starts  calls that must not start any more, because their clients were answered that there are none
    cancellation    cancel a call, or the calls that match a filter
    new_calls       the request, the checks and the response that start, adoption and report share
    adoption        follow a task that exists at an upstream as a call
    reports         record calls that run elsewhere, as their servers report them
    input_answers   answer the questions of a call
    unused_logins   remove the tokens for upstreams that the configuration does not have any more
    login_waits     park calls until somebody signs in to their upstream; send one of them again from time to time
    registrations   register webhooks and callbacks
    shared_webhooks  webhooks that are registered once although clients ask for them repeatedly
    webhooks        read, list, change, verify, test and remove webhooks; rotate their secrets
    webhook_updates  what every change and removal of a webhook does in its transaction
    webhook_changes  what the owner of a webhook changes
    webhook_checks  ownership, secrets and subscription limits of webhooks
    event_subscriptions  subscribe MCP clients to events by webhook, refresh and unsubscribe
    subscription_ends    end subscriptions by their client, with their key, or with their event type
    callback_proofs      prove a callback URL before anything is stored
    verification    which webhooks must prove that their URL accepts callbacks
    subscription_log     log lines about subscriptions that begin, are refused and end
    subscribed_webhooks  the webhook and the row that a subscription is
    subscription_starts  where in the log a subscription begins, and what its client has missed
    events          poll the event log
    event_polls     the same as MCP Events do: from now on, with a maximum age, and without errors about cursors
    event_streams   follow it, over REST and as MCP Events do, on one reader for each log (`log_tails`)
    event_demands   the demand for events that are recorded only while a principal wants them
    change_demands  polls and streams that demand changes of upstreams
    event_lookups   read single events, and the latest
    event_publishing  publish events of clients
    event_types     the types of events besides Ringback's own, and the demand for those of upstreams
    event_errors    the service's errors as errors of MCP Events
    deliveries      read deliveries and their attempts
    replays         send deliveries again
    bulk_redelivery  send the ended deliveries again that match a filter
    attempt_scheduling  make the pending deliveries of a webhook due now
    call_histories  read the history of a call, and the calls of a session for a chart
    lookups         find what an id or a key names
    live            lists that follow what happens, read once for all their viewers
    call_reads      read a principal's call, and stored results, large ones beside the event loop
    call_resumes    record when clients came back for their calls
    resume          exchange a resume token for a call, its result and its events; issue and revoke tokens
    scans           scans of the store on behalf of one principal
    pacing          pauses between the batches of one request
    quotas          limits for each principal
    body_admission  limits for the work that large request bodies make
    erasures        erase a call, a session or a principal; erasure_batches: one transaction each
    operators       act for another principal, or read the rows of all
    api_keys        create, list, revoke and authenticate API keys
    sign_ins        sign-ins to the dashboard
    portal_links    links to pages of the dashboard that need no key
    audit           who changed what
    mcp_sessions    keep legacy MCP sessions
    tool_aliases    names of tools when several upstreams share one endpoint
    insights        read models: upstreams, tools, status and readiness; hour by hour; client sessions
    upstream_reloads   reload the configuration of upstreams
    upstream_controls  pause, drain and resume upstreams
    upstream_logins sign in to upstreams and out; login_redirects: the redirect back, login_completion: what follows it,
                    login_states: who is signed in, login_tokens: writes, deletes and revokes the tokens
    node_signals    hints to other nodes, about what only one node has in memory
    sealing_keys    refuse a start without the keys that sealed stored data
    lifecycle       refuse new work during a shutdown
    long_polling    read the store again until a condition holds
    attended_waits  the wait of an open request for the call that it has started
    response_hooks  actions that run after a response has been written
    unread_responses  limits the memory of responses that their clients have not read

A resource of another principal and a resource that does not exist raise the same `NotFound` with the same words.
"""
