"""`python -m tests.service.dashboard_process <settings>`: one process of the dashboard."""

import sys

from service.processes.dashboard import run_dashboard
from service.settings import Settings

if __name__ == "__main__":
    run_dashboard(Settings.model_validate_json(sys.argv[1]))
