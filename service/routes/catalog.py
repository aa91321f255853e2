"""What can be named in a spec."""

from fastapi import APIRouter

from search.catalog import Catalog, catalog
from service.problems import documented

router = APIRouter(prefix="/v1", tags=["catalog"])


@router.get("/catalog", responses=documented(403))
def get_catalog() -> Catalog:
    """Architectures, parametrizations and tasks with their schemas, and what goes with what."""
    return catalog()
