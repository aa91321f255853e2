"""A fork server whose slots say what cannot be of trial 0; other jobs they do."""

import os
import sys
from multiprocessing.connection import Connection

import torch

from search.agents.executor import AttemptTicket
from search.agents.forking.loop import connect, serve
from search.agents.slot_process import _in_its_log, _Slot
from search.agents.slots.shares import Shares
from search.agents.slots.slot_line import SlotLine
from search.agents.warm_data import WarmData
from search.training.jobs import EpochReport


def run_or_lie(first: AttemptTicket, pipe: Connection) -> int:
    """Report an accuracy of 5, or do the job, one after the other."""
    torch.set_num_threads(first.threads)
    line = SlotLine(pipe)
    slot = _Slot(line, WarmData(0), _in_its_log)
    while (frame := line.next_job()) is not None:
        if frame["job"]["kind"] == "train" and frame["job"]["number"] == 0:
            member = line.begin(frame["attempt"], held=Shares(), stood_still=Shares())
            report = EpochReport(epoch=1, train_loss=0.0, validation=5.0, seconds=0.1)
            member.say_epoch(report, waits=True)
            member.hear_verdict()
            continue
        code = slot.do(frame)
        if code is not None:
            return code
    return os.EX_OK


if __name__ == "__main__":
    serve(connect(int(sys.argv[1])), run_or_lie)
