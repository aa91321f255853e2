"""The page of the devices that studies run on."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from service.api.devices.routes import list_devices
from service.api.resources import Held
from service.pages.html import page_response
from storage.repositories.studies import Studies

router = APIRouter(include_in_schema=False)


@router.get("/devices", response_class=HTMLResponse)
def devices_page(held: Held) -> HTMLResponse:
    """Every device with its slots, what runs on them, and who measures."""
    devices = list_devices(held).items
    running = {slot.attempt.study for one in devices for slot in one.slots if slot.attempt}
    with held.database.read() as session:
        names = {study.id: study.name for study in Studies(session).with_ids(running)}
    return page_response(held.pages.devices(devices, names=names))
