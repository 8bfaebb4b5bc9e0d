"""Checks of scripts/deploy by the tools that read its files. Run by scripts/check_deploy.

__main__   every check, and what each of them found
chart      the Helm chart: lint, render, the Kubernetes schemas
programs   compose files, the systemd unit, nginx.conf, alert rules and metrics, by the programs that read them
"""
