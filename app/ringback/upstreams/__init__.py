"""upstreams."""
