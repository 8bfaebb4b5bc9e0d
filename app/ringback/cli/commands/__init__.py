"""One module for each command, or for commands that share a noun. `cli.app` imports a module when its command runs.

    serve             runs the service
    dev               wraps an MCP server for a first try
    mcp               connects a client that starts commands to the service's MCP endpoints
    connect           puts the servers of an MCP client behind Ringback
    keys              API keys and encryption keys, in the service's database
    upstreams         lists, pauses, drains and resumes upstreams, and lists their tools
    upstream_logins   … signs in to them and out
    call              starts a call through the REST API and waits for it
    join              waits for a call that was started earlier
    wait              waits for any or all of several calls
    calls             lists, shows, cancels and answers calls
    top               shows what is open and what has happened, and keeps it up to date
    usage             prints the quotas
    erasures          erases a call, a session or a principal
    portal_links      makes links to pages of the dashboard that need no key
    audit             prints who changed what
    events            prints and follows the event log, and publishes events
    listen            receives callbacks by the event stream or by webhook
    webhooks          manages webhooks through the REST API
    webhook_states    … enables, disables, pauses and resumes them; prints what happens with their open deliveries
    deliveries        lists and repeats deliveries through the REST API
    trigger           sends a signed test event, and shows what its receiver answered
    verify            verifies a callback that was saved to a file
    check_receiver    checks a receiver of MCP Events
    check_server      checks an MCP server that offers Events
    migrate           brings the database to this version's schema
    copy              moves an installation from SQLite to PostgreSQL
    backup            backs the database up with its keys, and restores a backup
    help              prints the page for operators
    doctor            checks the whole installation

What commands are made of, and what they share, is in the packages and modules beside this one.
"""
