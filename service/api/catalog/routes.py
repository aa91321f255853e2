"""What can be named in a spec."""

from fastapi import APIRouter

from search.studies.catalog import Catalog, catalog
from service.http.problems import documented

router = APIRouter(prefix="/v1", tags=["catalog"])


@router.get("/catalog", responses=documented(403))
def get_catalog() -> Catalog:
    """All that a study may name, with its schema, and what goes with what."""
    return catalog()
