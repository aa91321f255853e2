"""`python -m tests.benchmarks.load`: 100 clients at once, and a bare FastAPI beside for comparison.

An API process over SQLite is asked by many clients that submit, list, look and listen; in turn with
it an application that does nothing is asked by as many. Both answer through the same uvicorn, and
one process speaks for all clients, so that ratios say what our own work costs. Then many listeners
wait for a study in which nothing happens, and for the one event that comes at last. With
`--costs` only what one request of each route costs is printed, see `request_cost`.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import psutil

from tests.benchmarks.bare import bare_server
from tests.benchmarks.request_cost import costs
from tests.service.processes import running_api
from tests.service.site import SMALL_SPEC, Site

Act = Callable[[httpx2.AsyncClient], Awaitable[None]]
Latencies = dict[str, list[float]]

STORED = 200
"""Studies that are there beforehand."""


async def submit(http: httpx2.AsyncClient) -> None:
    """A new study."""
    answer = await http.post("/v1/studies", json=SMALL_SPEC)
    assert answer.status_code == 202, answer.text


async def page(http: httpx2.AsyncClient) -> None:
    """A page of studies."""
    answer = await http.get("/v1/studies?limit=20")
    assert len(answer.json()["items"]) == 20


def look(study_id: str) -> Act:
    """One study."""

    async def act(http: httpx2.AsyncClient) -> None:
        answer = await http.get(f"/v1/studies/{study_id}")
        assert answer.json()["id"] == study_id

    return act


def listen(study_id: str) -> Act:
    """A stream, until its first event."""

    async def act(http: httpx2.AsyncClient) -> None:
        async with http.stream("GET", f"/v1/studies/{study_id}/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    return
        raise AssertionError("a stream without events")

    return act


async def nothing(http: httpx2.AsyncClient) -> None:
    """What the bare application does."""
    assert (await http.get("/hello")).status_code == 200


async def storm(
    url: str, acts: Mapping[str, Act], *, clients: int, seconds: float
) -> tuple[Latencies, int]:
    """Every client does one act after the other, over and over; seconds by act, and the errors."""
    taken: Latencies = defaultdict(list)
    errors = 0
    until = time.monotonic() + seconds

    async def client(http: httpx2.AsyncClient, offset: int) -> None:
        nonlocal errors
        names = list(acts)
        turn = offset
        while time.monotonic() < until:
            name = names[turn % len(names)]
            begun = time.perf_counter()
            try:
                await acts[name](http)
            except (httpx2.HTTPError, AssertionError, KeyError) as error:
                errors += 1
                sys.stderr.write(f"{name}: {error!r}\n")
            taken[name].append(time.perf_counter() - begun)
            turn += 1

    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx2.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        await asyncio.gather(*(client(http, number) for number in range(clients)))
    return taken, errors


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which such a share lies, in milliseconds."""
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


def loaded(folder: Path, *, clients: int, seconds: float, rounds: int) -> str:
    """The table of latencies under load."""
    site = Site(folder, event_poll_seconds=0.25)
    studies = [site.study() for _ in range(STORED)]
    acts: Mapping[str, Act] = {
        "submit": submit,
        "list 20": page,
        "look": look(studies[0].id),
        "first event": listen(studies[0].id),
    }
    rows: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    errors, asked = 0, 0
    with running_api(site.settings) as api, bare_server() as bare:
        for _ in range(rounds):
            idle, failed = asyncio.run(
                storm(bare.url, {"hello": nothing}, clients=clients, seconds=seconds)
            )
            errors += failed
            taken, failed = asyncio.run(storm(api.url, acts, clients=clients, seconds=seconds))
            errors += failed
            floor = percentile(idle["hello"], 0.5), percentile(idle["hello"], 0.99)
            for name, values in {**idle, **taken}.items():
                asked += len(values)
                typical, worst = percentile(values, 0.5), percentile(values, 0.99)
                rows[name].append((typical, worst, typical / floor[0], worst / floor[1]))
    site.close()
    lines = [
        f"{clients} clients at once, {rounds} rounds of {seconds:g} s, {STORED} studies stored "
        f"beforehand: {asked} requests, {errors} errors.",
        "",
        "| act | p50, ms | p99, ms | p50 / hello's | p99 / hello's |",
        "|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        cells = [_told([row[place] for row in found]) for place in range(4)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(values: Sequence[float]) -> str:
    """A median over the rounds, and from where to where they lie."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def idle(folder: Path, *, listeners: int, seconds: float) -> str:
    """What listeners cost who hear nothing, and when they hear what comes at last."""
    site = Site(folder, event_poll_seconds=0.25)
    study = site.study()
    site.run(study)

    async def wait(url: str, process: psutil.Process) -> tuple[float, float, int, list[float]]:
        def used() -> float:
            times = process.cpu_times()
            return times.user + times.system

        before, memory = used(), process.memory_info().rss
        await asyncio.sleep(seconds)
        alone = (used() - before) / seconds
        limits = httpx2.Limits(max_connections=None)
        async with (
            httpx2.AsyncClient(base_url=url, timeout=60, limits=limits) as http,
            AsyncExitStack() as held,
        ):
            streams = [
                await held.enter_async_context(
                    http.stream(
                        "GET",
                        f"/v1/studies/{study.id}/events",
                        headers={"Last-Event-ID": str(site.last_event(study))},
                    )
                )
                for _ in range(listeners)
            ]
            before = used()
            await asyncio.sleep(seconds)
            together = (used() - before) / seconds
            grown = process.memory_info().rss - memory

            async def hear(answer: httpx2.Response) -> float:
                async for line in answer.aiter_lines():
                    if line.startswith("data:"):
                        break
                return time.perf_counter()

            heard = [asyncio.create_task(hear(answer)) for answer in streams]
            begun = time.perf_counter()
            await asyncio.to_thread(site.event, study, number=1)
            return alone, together, grown, [at - begun for at in await asyncio.gather(*heard)]

    with running_api(site.settings) as api:
        process = psutil.Process(api.process.pid)
        alone, together, grown, delays = asyncio.run(wait(api.url, process))
    site.close()
    return (
        f"{listeners} streams of a study in which nothing happens, for {seconds:g} s: the API "
        f"takes {100 * alone:.1f} % of a core without them, {100 * together:.1f} % with them, and "
        f"{grown / listeners / 1024:.0f} KiB of memory for each. An event reaches half of them in "
        f"{percentile(delays, 0.5):.0f} ms and the last in {1000 * max(delays):.0f} ms "
        f"(a look for new ones every {1000 * site.settings.event_poll_seconds:.0f} ms)."
    )


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.load", description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--listeners", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round, and of waiting")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--costs", action="store_true", help="what a request costs, and no more")
    parser.add_argument("--cost-clients", type=int, default=20)
    parser.add_argument("--requests", type=int, default=30, help="of each client in a round")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reflectory-load-") as folder:
        sys.stdout.write(
            costs(
                Path(folder) / "costs",
                clients=given.cost_clients,
                each=given.requests,
                rounds=given.rounds,
            )
        )
        sys.stdout.write("\n\n")
        if given.costs:
            return
        sys.stdout.write(
            loaded(
                Path(folder) / "load",
                clients=given.clients,
                seconds=given.seconds,
                rounds=given.rounds,
            )
        )
        sys.stdout.write("\n\n")
        sys.stdout.write(
            idle(Path(folder) / "idle", listeners=given.listeners, seconds=given.seconds)
        )
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
