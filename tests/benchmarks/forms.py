"""`python -m tests.benchmarks.forms`: where diagonal plus low rank beats a whole matrix.

The numbers behind `models.forms.form.factored_form_pays`, both forms on our kernels. `--out FILE`
writes the tables too. Where an NVIDIA GPU answers nothing is measured without `--cpu`.
"""

import sys

from tests.benchmarks.processes import run_on_cpu

if __name__ == "__main__":
    sys.exit(run_on_cpu("tests.benchmarks.cpu.form_grid", sys.argv[1:]))
