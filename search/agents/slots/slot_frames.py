"""The frames between a slot's process and its machine's agent, over a socket pair.

A frame is JSON; one with a `size` is followed by so many bytes in a frame of their own. Each names
its `attempt`, of which the process may have several, see Note [Stacks] in `search/README.md`; but
`bye` is for the process itself. There is no key and no token on this line: the agent knows who is
at its other end.

| the slot says | |
|---|---|
| `begin` | it has begun the attempt; one that it has not is lost nothing by the process's end |
| `epoch`, `measurement`, `progress`, `artifact`, `beat` | what an attempt has to say |
| `fetch`, `dataset` | what it asks for, and hears `fetched` |
| `end` | its last word |
| `left` | it has stored its state and gone without a last word; without a `code`: it never began |

The last two have a `code`, as if a process of the attempt's own had exited with it; `frees`,
whether its place is free at once, and not only when the process has ended; and `lives`, whether
the process takes further attempts.

| the agent says | |
|---|---|
| `job` | an attempt to do; where it cannot be trained with what is underway it waits |
| `go_on` | an epoch that waited for its verdict was heard |
| `stop` | the verdict to stop, or to pause, at the end of the epoch |
| `fetched` | what was asked for |
| `leave` | this attempt alone is to store its state and go |
| `bye` | there will be no further job |
"""

import json
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

Frame = Mapping[str, Any]


def send(pipe: Connection, frame: Frame, content: bytes | None = None) -> None:
    """Send a frame, and its bytes if it has some; the caller sees to it that nobody cuts in."""
    pipe.send_bytes(json.dumps(frame).encode())
    if content is not None:
        pipe.send_bytes(content)


def receive(pipe: Connection) -> tuple[dict[str, Any], bytes | None]:
    """Wait for a frame; raises `EOFError` or `OSError` when the other end is gone."""
    frame: dict[str, Any] = json.loads(pipe.recv_bytes())
    return frame, pipe.recv_bytes() if "size" in frame else None
