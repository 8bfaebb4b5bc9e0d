"""Sign-ins of principals to upstreams that ask for OAuth.

    upstream_logins   sign in to upstreams and out
    login_redirects   the redirect back from the authorization server
    login_completion  what follows a redirect
    login_states      who is signed in
    login_tokens      write, delete and revoke the tokens
    login_waits       park calls until the owner of their credentials signs in; send one of them again from time to time
    unused_logins     remove the tokens for upstreams that the configuration does not have any more

The requests to authorization servers are those of `upstreams.oauth`.
"""
