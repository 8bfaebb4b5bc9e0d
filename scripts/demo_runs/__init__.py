"""The main job on real MCP servers, observed from outside: every figure of the report was observed.

agent 1 ── registers a webhook, starts three calls ── kill -9
Ringback ── runs them on git, time (stdio) and files (HTTP) ── signed callbacks ──▶ receiver (a third process)
agent 2 ── has one callback and its own API key ── resumes, reads the result; is rejected without the key

__main__    runs the steps, reports what was observed, and shows the dashboard
agents      starts agent 1 and kills it; runs agent 2 with one callback
service     starts Ringback, its upstreams and the receiver
processes   a folder, the processes in it, the timeline, and waiting
"""
