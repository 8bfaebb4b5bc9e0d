"""MCP servers that require a login, and the browser that signs in to them, all on real sockets.

    async with serving_sdk_peer(stage.app) as peer, Browser(account="ada") as browser:
        redirected_to = await browser.approve(authorization_url)

`sdk_peer` has the authorization server of the SDK, `fastmcp_peer` the one of FastMCP. `peer` is what tests know of both, and
`hostile_server` is an authorization server that responds as its test decides.
"""
