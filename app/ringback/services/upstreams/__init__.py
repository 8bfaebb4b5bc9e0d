"""What operators and endpoints do with the configured upstreams.

    upstream_controls  pause, drain and resume upstreams
    upstream_restarts  end the connections of this node to an upstream, and open them again
    upstream_reloads   reload the configuration of upstreams
    tool_aliases       names of tools when several upstreams share one endpoint

The package `ringback.upstreams` connects to them.
"""
