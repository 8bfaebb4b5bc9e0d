"""The built-in tools, `ringback_…`: for clients without tasks, events and webhooks. Each module of tools is a `Feature`.

    call_tools         get, wait for, answer, cancel, list and resume calls
    tool_schemas       … their names, descriptions and schemas, and what the arguments of all built-in tools share
    polled_waits       … the wait of ringback_wait_for_call, with the progress of the call
    poll_limiter       … advice to a model that polls: wait instead
    event_tools        ringback_get_event and ringback_recent_events
    notify_me          registers a callback for a call, for a session, or for what follows
    login_tool         where the user signs in to an upstream

They call the services as the methods of MCP do. A tool of an upstream with the name of a built-in tool is not listed.
"""
