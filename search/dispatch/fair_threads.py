"""Threads that tenants share fairly: the tenant with the fewest at work for its weight is next."""

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import final


@dataclass(eq=False)
class _Task:
    tenant: str
    work: Callable[[], bool]
    future: Future[None] = field(default_factory=Future[None])
    begun: bool = False


@final
class FairThreads:
    """A pool of threads. The work of one tenant is done in the order in which it came."""

    def __init__(self, count: int, *, name: str, weight: Callable[[str], float]) -> None:
        """Have `count` threads; `weight` is a tenant's, above 0."""
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._weight = weight
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Task]] = {}
        self._at_work: Counter[str] = Counter()
        self._closed = False

    def submit(self, tenant: str, work: Callable[[], bool]) -> Future[None]:
        """Have work done; it may return true to give way: then it is called again in its turn."""
        task = _Task(tenant, work)
        self._enqueue(task)
        return task.future

    def should_give_way(self, tenant: str) -> bool:
        """Whether another tenant waits that has fewer threads at work than this one."""
        with self._lock:
            own = self._load(tenant)
            return any(self._load(other) < own for other in self._waiting if other != tenant)

    def shutdown(self) -> None:
        """Begin nothing any more, and wait for what is at work."""
        with self._lock:
            self._closed = True
        self._pool.shutdown(cancel_futures=True)
        for task in (task for tasks in self._waiting.values() for task in tasks):
            # One that gave way has begun, and comes to no more.
            if not task.future.cancel():
                task.future.set_result(None)
        self._waiting.clear()

    def _enqueue(self, task: _Task) -> None:
        with self._lock:
            # Who has waited last stands last among equals.
            self._waiting.setdefault(task.tenant, deque()).append(task)
            if not self._closed:
                self._pool.submit(self._serve)

    def _serve(self) -> None:
        """Do what is fair to be done now: there are as many calls of this as tasks that wait."""
        with self._lock:
            tenant = min(self._waiting, key=self._load)
            task = self._waiting[tenant].popleft()
            left = self._waiting.pop(tenant)
            if left:
                self._waiting[tenant] = left
            self._at_work[tenant] += 1
        try:
            gave_way = self._do(task)
        finally:
            with self._lock:
                self._at_work[tenant] -= 1
                self._at_work += Counter()
        if gave_way:
            self._enqueue(task)

    def _do(self, task: _Task) -> bool:
        """Whether the task gave way; if not, it is over."""
        if not task.begun and not task.future.set_running_or_notify_cancel():
            return False
        task.begun = True
        try:
            gave_way = task.work()
        except BaseException as error:
            # As any pool does: the error is raised where the work is waited for.
            task.future.set_exception(error)
            return False
        if not gave_way:
            task.future.set_result(None)
        return gave_way

    def _load(self, tenant: str) -> float:
        return self._at_work[tenant] / self._weight(tenant)
