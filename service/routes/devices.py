"""The devices that studies run on."""

from datetime import UTC, datetime

from fastapi import APIRouter

from service.device_documents import DEVICES_EXAMPLE, DeviceList, device_list
from service.problems import documented
from service.resources import Held

router = APIRouter(prefix="/v1/devices", tags=["devices"])


@router.get(
    "",
    responses={
        200: {"content": {"application/json": {"example": DEVICES_EXAMPLE}}},
        **documented(403),
    },
)
def list_devices(held: Held) -> DeviceList:
    """Every device with its slots, what runs on them, and its measuring lane.

    Slots that work for others are busy, and no more is told of them.
    """
    with held.database.read() as session:
        return device_list(
            session, now=datetime.now(UTC), lease_seconds=held.settings.lease_seconds
        )
