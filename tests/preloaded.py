"""Python processes of the service, forked from one that has imported everything.

A server imports for seconds, once. The tests start some sixty servers, and other programs, so they
have one process import everything once, `Preloaded`, which forks whenever the tests, or a
process that was forked for them, start a program out of `PROGRAMS` with `subprocess`:

- The new process is a child of the one that asked, with the arguments, environment, folder and
  files that it gave: waiting, signals, sessions, groups and pipes are the kernel's own.
- It is forked a second time before its program begins: this copy forks for the new process.
- The process that forks has one thread, has run no tensor operation and has left CUDA alone, as
  `search.agents.forking.fork_server` has to.

A test that is about the start itself takes the marker `cold`, which has all started by exec.
"""

import atexit
import ctypes
import gc
import io
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from inspect import signature
from typing import Any, cast

from search.linux import show_title, shown_memory
from search.pandas_import import keep_pandas_out

PROGRAMS = frozenset(
    {
        "service.cli",
        "search.agents.forking.fork_server",
        "tests.search.agents.executors.lingering",
        "tests.search.agents.executors.lying",
        "tests.search.dying_coordinator",
        "tests.search.machine",
        "tests.service.dying_server",
        "tests.search.forked",
        "tests.service.api_process",
        "tests.service.dashboard_process",
    }
)
"""What is forked when it is started by `python -m`."""

_HAVE_CHILDREN = frozenset({"coordinator", "demo", "worker"})
"""The commands of `service.cli` that start others of `PROGRAMS`."""

_IMPORTED = (
    "service.cli",
    "service.client",
    "service.processes.dashboard",
    "service.processes.roles",
    "service.processes.supervisor",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    # What the fork server imports before its first slot.
    "torch._dynamo",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
)

_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "CUDA_", "TORCH")
"""Variables that begin so have had their effect before anything is forked."""

_ONE_THREAD = dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
"""A pool of threads that a library starts when it is imported would not survive a fork."""

_LONGEST_TITLE = 4096
_LONGEST_ENVIRONMENT = 32768
"""Room that is made for what `/proc` shows of a forked process, in bytes."""

_READY = b"ready"
_LIMITED = sorted({number for name, number in vars(resource).items() if name.startswith("RLIMIT_")})
_MESSAGE_BYTES = 1 << 20
_MOST_FILES = 64
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class _Start:
    """A process as it was asked for."""

    words: Sequence[str]
    module: str
    arguments: Sequence[str]
    unbuffered: bool
    environment: Mapping[str, str]
    folder: str
    umask: int
    files: Sequence[int]
    """The numbers that the files which come with this have in the new process."""
    limits: Sequence[tuple[int, int, int]]
    """Each resource's number with its soft and hard limit."""
    session: bool
    group: int


class _Forker:
    """A process below this one that forks children for this one."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def serves_here(self) -> bool:
        """Whether this is the process whose children it makes: forks of that have none."""
        return self._owner == os.getpid()

    def start(self, start: _Start, files: Sequence[int]) -> int | None:
        """The new child's process id; none when the forking process is gone."""
        message = json.dumps(asdict(start)).encode()
        with self._lock:
            adopted = ctypes.c_int()
            _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopted))
            # The process between the forker and the new one ends at once: whose is its child then?
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._link, [message], files)
                pid, ended = self._link.recv(64), self._link.recv(64)
            except (BrokenPipeError, ConnectionResetError):
                return None
            finally:
                _libc.prctl(_PR_SET_CHILD_SUBREAPER, adopted.value)
        return int(pid) if ended else None


_forker: _Forker | None = None
_process: "subprocess.Popen[bytes] | None" = None
"""The one that imports everything, kept for as long as this process runs."""
_cold = False
_start_by_exec = subprocess.Popen._execute_child  # pyright: ignore[reportAttributeAccessIssue]
_PARAMETERS = signature(_start_by_exec)


def install() -> None:
    """From now on, start `PROGRAMS` by forking them."""
    subprocess.Popen._execute_child = _execute_child  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def cold() -> Generator[None]:
    """Meanwhile every program is started by exec, and so is all that it starts."""
    global _cold
    before, _cold = _cold, True
    try:
        yield
    finally:
        _cold = before


def preload() -> None:
    """Start the process that imports everything."""
    global _forker, _process
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, str(there.fileno()), "-" * _LONGEST_TITLE]
    with there:
        _process = subprocess.Popen(
            command,
            pass_fds=(there.fileno(),),
            stdin=subprocess.DEVNULL,
            env=os.environ | _ONE_THREAD | {"ROOM": "-" * _LONGEST_ENVIRONMENT},
        )
    _forker = _Forker(here)
    if here.recv(64) != _READY:
        raise RuntimeError(f"{' '.join(command[:3])} ended with status {_process.wait()}")


def fork_from_here() -> None:
    """Have a copy of this process fork what it starts; it has one thread and all is imported."""
    global _forker
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        number = there.fileno()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.closerange(3, number)
        os.closerange(number + 1, max(_open_files()) + 1)
        _serve(there)
    there.close()
    _forker = _Forker(here)


def _execute_child(process: Any, *given: Any) -> None:
    """In place of `subprocess.Popen._execute_child`: ask for a fork where that can be done."""
    asked = _PARAMETERS.bind(process, *given).arguments
    start = _asked_for(asked)
    pid = None
    if start is not None and (_forker is None or _forker.serves_here()):
        if _forker is None:
            preload()
        assert _forker is not None
        standard = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = [number if given < 0 else given for number, given in enumerate(standard)]
        pid = _forker.start(start, [*files, *start.files[3:]])
    if pid is None:
        _start_by_exec(process, *given)
        return
    process.pid, process._child_created = pid, True
    pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
    process._close_pipe_fds(*(asked[name] for name in pipes))


def _asked_for(asked: Mapping[str, Any]) -> _Start | None:
    """What is to be forked; none for what has to be started by exec."""
    words = asked["args"]
    if _cold or isinstance(words, str | bytes | os.PathLike) or asked["shell"]:
        return None
    words = [os.fsdecode(word) for word in words]
    flags = words[1 : words.index("-m")] if "-m" in words else []
    named = words[len(flags) + 2 : len(flags) + 3]
    environment = dict(os.environ if asked["env"] is None else asked["env"])
    unusual = (asked["preexec_fn"], asked["executable"], asked["gid"], asked["gids"], asked["uid"])
    if (
        words[0] != sys.executable
        or not set(flags) <= {"-P", "-u"}
        or not PROGRAMS.issuperset(named)
        or not named
        or any(value is not None for value in unusual)
        or _at_start(environment) != _at_start(os.environ)
    ):
        return None
    group = asked["process_group"]
    return _Start(
        words=words,
        module=named[0],
        arguments=words[len(flags) + 3 :],
        unbuffered="-u" in flags,
        environment=environment,
        folder=os.path.abspath(asked["cwd"] or os.curdir),
        umask=asked["umask"] if asked["umask"] >= 0 else _umask(),
        files=[0, 1, 2, *asked["pass_fds"]],
        limits=[(number, *resource.getrlimit(number)) for number in _LIMITED],
        session=bool(asked["start_new_session"]),
        group=-1 if group is None else group,
    )


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


def _umask() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1], 8) for line in status if line.startswith("Umask"))


def _open_files() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _serve(link: socket.socket) -> None:
    """Fork whenever asked; ends with the other side. In the new process, run its program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    show_title(["forks", "for", "process", str(os.getppid())])
    while True:
        message, received, _, _ = socket.recv_fds(link, _MESSAGE_BYTES, _MOST_FILES)
        if not message:
            os._exit(0)
        between = os.fork()
        if between == 0:
            # Asked before the fork: this process may be gone when the new one first runs.
            own = os.getpid()
            pid = os.fork()
            if pid == 0:
                _run(_Start(**json.loads(message)), received, forked_by=own)
            link.send(str(pid).encode())
            os._exit(0)
        for descriptor in received:
            os.close(descriptor)
        os.waitpid(between, 0)
        link.send(b"ended")


def _run(start: _Start, received: Sequence[int], *, forked_by: int) -> None:
    """Become the process that was asked for, up to its end."""
    while os.getppid() == forked_by:
        time.sleep(0.0005)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if start.session:
        os.setsid()
    elif start.group >= 0:
        os.setpgid(0, start.group)
    _place(received, start.files)
    for number, soft, hard in start.limits:
        resource.setrlimit(number, (soft, hard))
    os.chdir(start.folder)
    os.umask(start.umask)
    os.environ.clear()
    os.environ.update(start.environment)
    # Which folder that is was looked up when all was imported.
    tempfile.tempdir = None
    show_title(start.words)
    _show_environment(start.environment)
    if start.unbuffered or os.isatty(1):
        cast("io.TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    np = sys.modules["numpy"]
    np.random.seed()
    if start.module == "service.cli" and not _HAVE_CHILDREN.isdisjoint(start.arguments[:1]):
        fork_from_here()
    sys.argv = [start.module, *start.arguments]
    sys.modules.pop(start.module, None)
    status: object = 0
    try:
        runpy.run_module(start.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    if not isinstance(status, int | None):
        sys.exit(status)
    # As at any end, but for taking a million objects apart.
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 0xFF)


def _place(received: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the files their numbers, and close all others."""
    import fcntl

    above = max([*numbers, *_open_files()]) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in received]
    os.closerange(0, above)
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
    os.closerange(above, max(moved) + 1)


def _show_environment(environment: Mapping[str, str]) -> None:
    """Show these variables as what the process got, in the memory of the first ones."""
    _, _, first, end = shown_memory()
    pairs = [os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items()]
    shown = b"".join(pairs)[: end - first - 1]
    ctypes.memset(first, 0, end - first)
    ctypes.memmove(first, shown, len(shown))


def _main() -> None:
    from importlib import import_module

    # As the server itself does before it forks.
    keep_pandas_out()
    for module in _IMPORTED:
        import_module(module)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: something that was imported started one"
    gc.collect()
    gc.freeze()
    install()
    link = socket.socket(fileno=int(sys.argv[1]))
    link.send(_READY)
    _serve(link)


if __name__ == "__main__":
    # Under its own name: the forked processes' own start helper has to be this very module.
    from tests import preloaded

    preloaded._main()
