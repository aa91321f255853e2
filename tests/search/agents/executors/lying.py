"""A fork server whose attempts at trial 0 say what cannot be; others do their jobs."""

import os
import sys
from contextlib import suppress

from search.agents.executor import AttemptTicket
from search.agents.forking.fork_server import run_attempt
from search.agents.forking.loop import connect, serve
from search.agents.worker_client import WorkerLink
from search.errors import SearchError
from search.training.jobs import EpochReport, TrainJob


def run_or_lie(ticket: AttemptTicket) -> int:
    """Report an accuracy of 5, or do the ticket's job."""
    link = WorkerLink(
        ticket.url, ticket.attempt_id, ticket.token, lease_seconds=ticket.lease_seconds
    )
    with link:
        job = link.job()
        if not isinstance(job, TrainJob) or job.number > 0:
            return run_attempt(ticket)
        with suppress(SearchError):
            link.epoch(EpochReport(epoch=1, train_loss=0.0, validation=5.0, seconds=0.1))
    return os.EX_OK


if __name__ == "__main__":
    serve(connect(int(sys.argv[1])), run_or_lie)
