"""What operators and endpoints do with the configured upstreams.

    upstream_controls  pause, drain and resume upstreams
    upstream_reloads   reload the configuration of upstreams; end the connections of this node, and open them again
    tool_aliases       names of tools when several upstreams share one endpoint

The package `ringback.upstreams` connects to them.
"""
