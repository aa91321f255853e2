"""A program that prints a machine's devices as JSON; torch is asked once."""

import sys

from search.agents.executors.slots import gpus
from search.agents.launchers.ray.messages import DEVICES
from search.measuring.devices import device_model

if __name__ == "__main__":
    shown = tuple((gpu.uuid, gpu.name) for gpu in gpus())
    sys.stdout.write(DEVICES.dump_json((device_model("cpu"), shown)).decode())
