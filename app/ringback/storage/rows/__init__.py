"""The rows of every store: what `domain.ports.Transaction` offers, on named statements.

    row class ──name, parameters──▶ Statements ──▶ sqlite/sql/<noun>.sql, or postgres/sql/<noun>.sql

A row class knows which statements it runs and how their rows become records; a dialect knows how each statement is written and
on which connection it runs. Each row class names its file under sql/ (challenges and proofs share one).

    transaction      what a unit of work sees: the row classes below
    unit             what the row classes of one unit of work share
    statements       the port of the dialects
    columns          column types, and the codec of every record
    paging           pages of bounded work

    calls            calls, their queue, tombstones of expired calls; call_content: their arguments and results
    call_histories   the events, deliveries and attempts of calls, and when clients came back for them
    events           events, and the log of each principal
    webhooks         webhooks, the calls that name them, catch-ups, change subscriptions, breakers of origins;
                     webhook_matching: an event's webhooks; webhook_reader: decoded webhooks
    deliveries       deliveries, those of a call, those of a webhook; delivery_queue: due ones, and the janitor's
    verification     challenges and proofs of callback URLs
    upstreams        catalogs, aliases of tools
    login_waits      calls that wait for a login to their upstream, and when one of them is sent again without it
    mcp_sessions     legacy MCP sessions
    upstream_logins  logins to upstreams, their tokens, registered OAuth clients; upstreams that are not configured any more
    encryption       sealed values; sealing_keys: the keys that sealed them
    api_keys         hashes of API keys
    dashboard_access  sign-ins to the dashboard, portal links, the audit log
    erasures         erasures, and the rows that they remove
    event_types      types of external events, and the demand for them
    nodes            what nodes decide together: duties and rates
    insights         hourly counts, open work, client sessions; insight_facts: what hourly counts are counted from
    operations       usage counts, scheduling time, when rows need the janitor
"""
