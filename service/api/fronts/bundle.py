"""The points of a front as one ZIP file, written while it is sent: nothing is gathered first."""

from collections.abc import Generator

from service.api.folders import FolderMaker, ZipWriter, missing_files
from service.api.fronts.csv_tables import front_csv
from service.api.fronts.schemas import MISSING, FrontDocument, MissingFile, MissingFiles


def bundle(maker: FolderMaker, study_id: str, front: FrontDocument) -> Generator[bytes]:
    """`front.csv`, `front.json`, and the folder of each point, with what is stored of it.

    Files that are not in it are named in a last file, `missing.json`, with the reason: bytes that
    are damaged or gone, what retention did not keep, and what cannot be made or was not yet. A
    store that does not answer breaks the file off before its directory, without which nobody takes
    it for whole.
    """
    missing: list[MissingFile] = []
    writer = ZipWriter(maker.store)
    yield writer.add("front.csv", front_csv(front))
    yield writer.add("front.json", front.model_dump_json(indent=2))
    for point in front.points:
        folder = maker.folder(study_id, point.trial)
        missing += missing_files(point.trial, folder)
        yield from writer.add_folder(f"trial-{point.trial}", list(folder.files.values()), missing)
    if missing:
        yield writer.add(MISSING, MissingFiles(missing=tuple(missing)).model_dump_json(indent=2))
    yield writer.close()
