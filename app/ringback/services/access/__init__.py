"""Who may act, and for whom.

    api_keys      create, list, revoke and authenticate API keys
    sign_ins      sign-ins to the dashboard
    portal_links  links to pages of the dashboard that need no key
    operators     act for another principal, or read the rows of all

What a caller may do is decided by `domain.principal.Caller`; `identity` finds out who calls.
"""
