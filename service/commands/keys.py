"""`keys`: API keys, made and revoked in the database itself; no server is needed for the first."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from service.commands.connection import (
    REFUSED,
    DataDirOption,
    JsonOption,
    fail,
    print_json,
    settings_from,
)
from service.commands.tables import empty_table
from service.principal import Scope
from storage.records import LOCAL, ApiKeyRecord

if TYPE_CHECKING:
    from storage.engine import Database

commands = typer.Typer(no_args_is_help=True, help="API keys, in the database of a server.")

_PAGE = 100
_UNDONE = 1

_TenantOption = Annotated[
    str, typer.Option(help="Whose key it is: each tenant sees its own studies and data sets alone.")
]


@commands.command("create", epilog="Example: reflectory keys create laptop --scope write")
def create(
    name: Annotated[str, typer.Argument(help="What the key is for, or who has it.")],
    tenant: _TenantOption = LOCAL,
    scope: Annotated[
        Scope,
        typer.Option(help="What it may do; each includes those before it, but `work` is apart."),
    ] = "write",
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it, once and never again.

    From the first key on everybody needs one, also the local user.
    """
    # Only these commands need the database: the others start without it.
    from service.api_keys import check_names, create_key

    if fault := check_names(tenant=tenant, name=name):
        raise typer.BadParameter(fault)
    with _database(data_dir, as_json=as_json) as database:
        made = create_key(database.of(tenant), name=name, scopes=(scope,))
    if as_json:
        print_json({**_document(made.record), "key": made.text})
        return
    # The key alone goes to stdout, so that a script can take it from there.
    typer.echo(
        f"key {made.record.id} of tenant {tenant}, for {', '.join(made.record.scopes)}; "
        "it is shown here and never again:",
        err=True,
    )
    typer.echo(made.text)


@commands.command("list", epilog="Example: reflectory keys list --tenant vision")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the keys, newest first, revoked ones too."""
    from storage.keys import Keys

    found: list[ApiKeyRecord] = []
    with _database(data_dir, as_json=as_json) as database:
        whose = database if tenant is None else database.of(tenant)
        cursor: str | None = None
        while True:
            with whose.read() as session:
                page = Keys(session).page(limit=_PAGE, cursor=cursor)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
    if as_json:
        print_json([_document(key) for key in found])
        return
    table = empty_table()
    table.add_column("id", no_wrap=True)
    for column in ("name", "tenant", "scopes", "made", "last used", "revoked"):
        table.add_column(column, overflow="fold")
    for key in found:
        times = (key.created_at, key.last_used_at, key.revoked_at)
        shown = ("–" if at is None else f"{at:%Y-%m-%d %H:%M}" for at in times)
        table.add_row(key.id, escape(key.name), escape(key.tenant), " ".join(key.scopes), *shown)
    Console().print(table)


@commands.command("revoke", epilog="Example: reflectory keys revoke 4f1d2c3b5a69")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, see `list`.")],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a key open nothing any more, for ever; servers notice within two seconds."""
    from service.api_keys import revoke_key
    from storage.errors import NotFound
    from storage.keys import Keys

    with _database(data_dir, as_json=as_json) as database:
        try:
            with database.read() as session:
                tenant = Keys(session).get(key_id).tenant
            key = revoke_key(database.of(tenant), key_id)
        except NotFound as error:
            fail(str(error), REFUSED, as_json=as_json)
    if as_json:
        print_json(_document(key))
    else:
        typer.echo(f"key {key.id} ({key.name}) is revoked")


@contextmanager
def _database(data_dir: Path | None, *, as_json: bool) -> "Generator[Database]":
    from storage.engine import Database
    from storage.errors import StorageError

    settings = settings_from(data_dir=data_dir)
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        database = Database(settings.database_url)
        try:
            database.migrate()
            yield database
        finally:
            database.dispose()
    except (StorageError, OSError) as error:
        fail(str(error), _UNDONE, as_json=as_json)


def _document(key: ApiKeyRecord) -> dict[str, Any]:
    times = ("created_at", "last_used_at", "revoked_at")
    shown = {name: at and at.isoformat() for name in times for at in [getattr(key, name)]}
    return {**vars(key), "scopes": list(key.scopes), **shown}
