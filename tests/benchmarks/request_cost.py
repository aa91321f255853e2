"""What the API process spends on one request, as a multiple of what bare FastAPI spends on one.

Twenty clients ask one route over and over, in turn with an application that does nothing, in
bursts that follow one another: whatever else the machine does meets both alike. What is counted is
the processor time of the answering process alone, all of its threads. The clients are plain
sockets, so that they are no slower than what they ask.
"""

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from storage.records import StudyRecord
from storage.repositories.events import Events
from storage.repositories.measurements import Measurements
from storage.repositories.trials import Trials
from tests.benchmarks.bare import Bare, bare_server
from tests.service.processes import running_api
from tests.service.site import Site, now

TRIALS = 60
"""Of the study that is asked about; each has an attempt and the files of a real one."""
_LISTED = 20
_WARMING = 40

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""One request on an open connection, and all of its answer."""


def whole_answer(path: str) -> Exchange:
    """GET a path, and read all of the answer."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n".encode()

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))

    return exchange


def first_event(path: str) -> Exchange:
    """Listen until the first event."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request)
        await reader.readuntil(b"\ndata:")
        await reader.readuntil(b"\n\n")

    return exchange


async def burst(url: str, exchange: Exchange, *, clients: int, each: int, keep: bool) -> None:
    """So many clients at once, each with so many requests one after the other.

    A stream that its client leaves takes a connection of its own: then `keep` is false.
    """
    place = urlsplit(url)
    assert place.hostname is not None

    async def client() -> None:
        left = each
        while left > 0:
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            for _ in range(left if keep else 1):
                await exchange(reader, writer)
                left -= 1
            writer.close()
            await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(clients)))


async def bursts_after_changes(
    url: str, exchange: Exchange, change: Callable[[], None], *, clients: int
) -> None:
    """The same clients ask once after each change, all at once, over connections that they keep."""
    place = urlsplit(url)
    open_ones = [await asyncio.open_connection(place.hostname, place.port) for _ in range(clients)]
    for _ in range(_CHANGES):
        change()
        await asyncio.gather(*(exchange(reader, writer) for reader, writer in open_ones))
    for _, writer in open_ones:
        writer.close()
        await writer.wait_closed()


def used(process: psutil.Process) -> float:
    """Processor seconds of a process."""
    times = process.cpu_times()
    return times.user + times.system


def cost(
    url: str, process: psutil.Process, exchange: Exchange, *, clients: int, each: int, keep: bool
) -> float:
    """Processor seconds of one request."""
    before = used(process)
    asyncio.run(burst(url, exchange, clients=clients, each=each, keep=keep))
    # What is done after the last answer belongs to it.
    asyncio.run(asyncio.sleep(0.05))
    return (used(process) - before) / (clients * each)


def stocked(site: Site) -> StudyRecord:
    """A running study with trials, and as many studies beside it as a page shows."""
    study = site.study(budget={"trials": TRIALS + 10, "epochs": 2}, duplicates="replicate")
    site.run(study)
    for number in range(TRIALS):
        site.trial(study, number, quality=0.5 + number % 7 / 20, throughput=100.0 + number)
    for _ in range(_LISTED):
        site.run(site.study())
    return study


def changed(site: Site, study: StudyRecord) -> None:
    """Give a trial of the study another throughput, with the event that comes with such things."""
    with site.database.write() as session:
        number = Events(session).latest([study.id])[study.id] % TRIALS
        trial = Trials(session).get(study.id, number)
        assert trial.measurement_id is not None
        measured = Measurements(session).get(trial.measurement_id)
        speed = (trial.throughput or 0.0) + 0.001
        Trials(session).set_throughput(
            study.id, number, replace(measured, samples_per_second=speed)
        )
        Events(session).append(study.id, "download", {"number": 1}, now())


def routes_of(study: StudyRecord) -> Mapping[str, tuple[Exchange, bool]]:
    """What is asked, and whether one connection serves for many requests."""
    path = f"/v1/studies/{study.id}"
    return {
        "study": (whole_answer(path), True),
        f"list of {_LISTED} studies": (whole_answer(f"/v1/studies?limit={_LISTED}"), True),
        "front": (whole_answer(f"{path}/front"), True),
        "trial": (whole_answer(f"{path}/trials/7"), True),
        "50 trials": (whole_answer(f"{path}/trials?limit=50"), True),
        "first event of a stream": (first_event(f"{path}/events"), False),
    }


def costs(folder: Path, *, clients: int, each: int, rounds: int) -> str:
    """The table of what each route costs, still and while its study changes."""
    site = Site(folder, event_poll_seconds=0.25)
    study = stocked(site)
    routes = routes_of(study)
    spent: dict[str, list[float]] = defaultdict(list)
    shares: dict[str, list[float]] = defaultdict(list)
    changing: dict[str, list[float]] = defaultdict(list)
    hello = whole_answer("/hello")
    with ExitStack() as held:
        api = held.enter_context(running_api(site.settings))
        process = psutil.Process(api.process.pid)
        bare = held.enter_context(bare_server())

        def of_hello(server: Bare) -> float:
            return cost(server.url, server.process, hello, clients=clients, each=each, keep=True)

        def of_route(exchange: Exchange, keep: bool, requests: int) -> float:
            return cost(api.url, process, exchange, clients=clients, each=requests, keep=keep)

        for exchange, keep in routes.values():
            of_route(exchange, keep, max(1, _WARMING // clients))
        of_hello(bare)
        for _ in range(rounds):
            for name, (exchange, keep) in routes.items():
                floor = of_hello(bare)
                taken = of_route(exchange, keep, each)
                spent["hello"].append(1000 * floor)
                spent[name].append(1000 * taken)
                shares[name].append(taken / floor)
                if not keep:
                    continue
                before = used(process)
                change = partial(changed, site, study)
                asyncio.run(bursts_after_changes(api.url, exchange, change, clients=clients))
                taken = (used(process) - before) / (clients * _CHANGES)
                changing[name].append(taken / floor)
    site.close()
    lines = [
        f"Processor time of the answering process for one request, {clients} clients at once, "
        f"{rounds} rounds of {clients * each} requests, each in turn with bare FastAPI behind the "
        f"same uvicorn. The study runs and has {TRIALS} trials; in the last column one of them "
        f"gets another value before every {clients} requests, so that its data have another "
        "version.",
        "",
        "| request | ms | / hello's | / hello's, just changed |",
        "|---|---:|---:|---:|",
        f"| hello | {_told(spent['hello'])} | 1 | |",
    ]
    for name in routes:
        fresh = _told(changing[name]) if changing[name] else ""
        lines.append(f"| {name} | {_told(spent[name])} | {_told(shares[name])} | {fresh} |")
    return "\n".join(lines)


_CHANGES = 30
"""How often a study changes in a round."""


def _told(values: Sequence[float]) -> str:
    """A median over the rounds, and from where to where they lie."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"
