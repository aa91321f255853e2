"""A fork server without torch, whose attempts do what their ticket's `script` says."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

from search.agents.executor import AttemptTicket
from search.agents.forking.loop import connect, serve


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def exit_with(ticket: AttemptTicket) -> int:
    return ticket.threads


def crash(ticket: AttemptTicket) -> int:
    raise RuntimeError("this attempt does not like its job")


def leave(ticket: AttemptTicket) -> int:
    raise SystemExit(5)


def talk(ticket: AttemptTicket) -> int:
    say("to stdout")
    sys.stderr.write("to stderr\n")
    os.write(1, b"past python\n")
    return 0


def keep_in_a_buffer(ticket: AttemptTicket) -> int:
    """Leave words to the last flush, as with a server that was forked and has buffers itself."""
    sys.stdout = os.fdopen(1, "w", closefd=False)
    say("to stdout")
    return 0


def wait(ticket: AttemptTicket) -> int:
    time.sleep(600)
    return 0


def stand_up(ticket: AttemptTicket) -> int:
    """End in an orderly way when asked to."""
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: asked.set())
    say("ready")
    asked.wait(600)
    return 143


def turn_deaf(ticket: AttemptTicket) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("ready")
    time.sleep(600)
    return 0


def have_children(ticket: AttemptTicket) -> int:
    """Start a child that ignores SIGTERM and has a child itself, say their pids, and wait."""
    script = "trap '' TERM; sleep 600 & echo $!; echo $$; wait; wait"
    child = subprocess.Popen(["sh", "-c", script])
    child.wait()
    return 0


def have_children_and_end(ticket: AttemptTicket) -> int:
    script = "trap '' TERM; sleep 600 & echo $!; echo $$; wait; wait"
    subprocess.Popen(["sh", "-c", script])
    time.sleep(0.3)
    return 0


def show_process(ticket: AttemptTicket) -> int:
    """Say what this process is made of."""
    say("open", *sorted(os.listdir("/proc/self/fd"), key=int))
    say("group", os.getpgrp() == os.getpid() == os.getsid(0))
    say("gpus", repr(os.environ["CUDA_VISIBLE_DEVICES"]))
    for name in ("SIGTERM", "SIGINT", "SIGCHLD"):
        say(name, signal.getsignal(getattr(signal, name)) == signal.SIG_DFL)
    say("blocked", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    return 0


def take_too_much(ticket: AttemptTicket) -> int:
    """Fill all the memory of the control group that `data` names."""
    assert ticket.data is not None
    (ticket.data / "cgroup.procs").write_text(str(os.getpid()))
    taken = bytearray()
    while True:
        taken += b"1" * 2**22


def take_until_refused(ticket: AttemptTicket) -> int:
    """Take all the memory that there is for it, and say how much that was, in MiB."""
    taken: list[bytearray] = []
    try:
        while True:
            taken.append(bytearray(2**24))
    except MemoryError:
        say(len(taken) * 16)
    return 0


def take_what_there_is(ticket: AttemptTicket) -> int:
    """Take ever more memory, with a child that holds some, until somebody steps in."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    taken = bytearray()
    while True:
        taken += b"1" * 2**22


def break_down(ticket: AttemptTicket) -> int:
    os.abort()


SCRIPTS = {
    script.__name__: script
    for script in (
        exit_with,
        crash,
        leave,
        talk,
        keep_in_a_buffer,
        wait,
        stand_up,
        turn_deaf,
        have_children,
        have_children_and_end,
        show_process,
        take_too_much,
        take_until_refused,
        take_what_there_is,
        break_down,
    )
}


def run(ticket: AttemptTicket, pipe: Connection) -> int:
    pipe.close()
    return SCRIPTS[str(ticket.log_fields["script"])](ticket)


if __name__ == "__main__":
    serve(connect(int(sys.argv[1])), run)
