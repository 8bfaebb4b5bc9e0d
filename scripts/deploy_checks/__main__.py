"""Prints one line for each check. Exits with 1 if a check finds a fault."""

import sys

from scripts.deploy_checks.chart import check_chart
from scripts.deploy_checks.programs import check_alerts, check_compose, check_metrics, check_nginx, check_unit


def main() -> None:
    results = {
        "chart": check_chart(),
        "compose": check_compose(),
        "systemd unit": check_unit(),
        "nginx.conf": check_nginx(),
        "alerts.yaml": check_alerts(),
        "metrics": check_metrics(),
    }
    for name, result in results.items():
        print(f"{name}: {result.words}")
    sys.exit(any(result.faulty for result in results.values()))


if __name__ == "__main__":
    main()
