"""Streams that begin without the framework: what a client pays for one is mostly its opening.

Only the plain request is answered here, by a path, a number and the user who asks. Whatever may be
refused, and whatever has nothing left to send, goes to the route, which says so as it always does.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, final

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from service.api.events.stream import stream_of
from service.api.resources import Resources
from service.auth.principal import Principal
from storage.errors import StorageError

_PATH: Final = re.compile(r"/v1/studies/([^/]+)/events")
_AFTER: Final = re.compile(rb"(?:after=([0-9]{1,15}))?")


@final
class DirectStreams:
    """Answers plain requests for streams."""

    def __init__(self, router: APIRouter, endpoint: Callable[..., object]) -> None:
        """`endpoint` is the one of the router that answers all other requests for streams."""
        self._route: BaseRoute = next(
            route for route in router.routes if getattr(route, "endpoint", None) is endpoint
        )

    async def answered(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> bool:
        """Whether the request was answered; if not, nothing was sent."""
        match = _PATH.fullmatch(scope["path"])
        if match is None:
            return False
        place = _place(scope, headers)
        asker: Principal | None = scope["state"]["principal"]
        if place is None or asker is None or scope["method"] != "GET":
            return False
        held: Resources = scope["app"].state.resources
        study_id = match[1]
        database = held.database.of(asker.tenant, key_id=asker.key_id)
        with ExitStack() as counted:
            try:
                opening = await held.poller.opening(database, asker.tenant, study_id, place)
                if place > opening.last_event or (opening.ended and place == opening.last_event):
                    return False
                quota = await held.quotas.of(asker.tenant)
                counted.enter_context(held.streams.one_more(asker, quota))
            except StorageError:
                return False
            scope["route"], scope["path_params"] = self._route, {"study_id": study_id}
            stream = stream_of(held.poller, study_id, asker, after=place, opening=opening)
            await stream(scope, receive, send)
        return True


def _place(scope: Scope, headers: Headers) -> int | None:
    """After which event a stream begins; null where the route is to judge what was asked."""
    after = _AFTER.fullmatch(scope["query_string"])
    if after is None:
        return None
    last = headers.get("last-event-id")
    if last is None:
        return int(after[1] or 0)
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 16 else None
