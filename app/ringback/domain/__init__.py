"""The terms and rules of Ringback, as values, tables and pure functions.

Nothing here awaits, reads a clock, draws a random number or imports a framework: callers hand in time and randomness. A rule
that several surfaces need is written here once and tested by properties.

    ids  clock  errors  cursor  jsontext  validation   shared small types and checks
    json_size                                          how much a JSON text contains, before it is decoded
    record_copies  record_inits                        quick copies and constructors of records with many fields
    clock_confirmation                                 a start at which the clock is far ahead of the last process
    call  call_outcome  call_completion  inputs  tool_result         a call, how it ends, its input requests, its result
    call_histories  call_resumes                       what happened to a call, when its client came back for it
    webhook  webhook_health  circuit_breaker           which events a webhook matches; when it is suspended or paused
    webhook_text                                       the sentences that say so to its owner
    callback_headers                                   headers that a webhook's owner adds to its callbacks
    event  delivery  retry  rate_limiter               the log, deliveries, retry schedules, pauses and rates
    attempt_category  failure_rate                     how an attempt ended, and how often attempts fail
    event_types  event_subscriptions  payload_changes  types of external events, subscriptions of MCP clients
    catch_up  verification  suspension  liveness       old cursors, proof of a URL, sleep of the machine, frozen children
    principal  protected_resource  usage  meta         callers and scopes, OAuth resources, quotas, reserved `_meta` keys
    insights, insight_rows                             what happened hour by hour, for charts; open work; client sessions
    erasure                                            what is erased on request, and what remains of it
    mcp_sessions  client_address  roles                stored MCP sessions, clients behind proxies, what a node does
    unused_logins                                      tokens for upstreams that the configuration does not have any more
    upkeep                                             when rows need the janitor
    login_waits                                        calls that wait for a login to their upstream
    login_checks                                       when one of these calls is sent again without a login
    call_waits  wait_words  upstream_pauses            what a call waits for, in words; calls of an upstream that is paused
    sign_ins  portal_links  audit                      who looks at the dashboard, and who changed what
    upstream_logins  login_urls                        logins to upstreams by OAuth, the tokens of their owners, their URLs
    upstreams  change_subscriptions  encryption        ports to upstreams, subscriptions to their changes, sealed columns
    call_rows  webhook_rows  delivery_rows  event_rows  log_appends  upstream_rows  node_rows
    signals  ports                                     what the rules need of a store, as narrow Protocols
"""
