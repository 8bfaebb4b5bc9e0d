"""The checks of `ringback check-receiver`: what a receiver of MCP Events answers to good, bad and hostile requests.

    probe        sends one request, signed or not, and reads the answer within bounds
    checks       a check: its case as data, and the function that judges the receiver by one or more answers
    signatures   … the signature, its headers, its age, and rotation
    envelopes    … challenges, gap, terminated, and unknown control envelopes
    bodies       … sizes, text, and JSON that is unusual or broken
    requests     … methods, content types, slow bodies, copies, several subscriptions
    run          runs all checks, one after the other

The checks know the receiver by its URL and a secret alone, so they hold for a receiver of any make.
"""

from ringback.cli.receiver_checks.run import ALL_CHECKS, find_unaccepted, run_receiver_checks

__all__ = ["ALL_CHECKS", "find_unaccepted", "run_receiver_checks"]
