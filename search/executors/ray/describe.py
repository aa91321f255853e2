"""`python -m search.executors.ray.describe`: prints a machine's devices, torch asked once."""

import sys

from search.devices import device_model
from search.executors.ray.pipe import DEVICES
from search.executors.slots import gpus

if __name__ == "__main__":
    sys.stdout.write(DEVICES.dump_json((device_model("cpu"), tuple(gpus()))).decode())
