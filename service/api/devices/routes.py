"""The devices that studies run on."""

from datetime import UTC, datetime

from fastapi import APIRouter

from service.api.devices.documents import device_list
from service.api.devices.schemas import DEVICES_EXAMPLE, DeviceList
from service.api.resources import Held
from service.http.problems import documented

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.get(
    "",
    responses={
        200: {"content": {"application/json": {"example": DEVICES_EXAMPLE}}},
        **documented(403),
    },
)
def list_devices(held: Held) -> DeviceList:
    """Every device with its slots, what runs on them, and its measurement lock.

    Slots that work for others are busy, and no more is shown of them.
    """
    with held.database.read() as session:
        return device_list(
            session, now=datetime.now(UTC), lease_seconds=held.settings.lease_seconds
        )
