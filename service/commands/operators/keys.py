"""`keys`: API keys, made and ended in the database itself; no server is needed for the first."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from service.api.keys.durations import duration
from service.auth.principal import Scope
from service.commands.connection import (
    REFUSED,
    DataDirOption,
    JsonOption,
    fail,
    print_json,
)
from service.commands.given.confirmation import YesOption, confirm
from service.commands.operators.local_database import local_database
from service.commands.shown.tables import add_columns, empty_table
from storage.account_records import ApiKeyRecord
from storage.records import LOCAL

if TYPE_CHECKING:
    from service.auth.api_keys import NewKey

commands = typer.Typer(no_args_is_help=True, help="API keys, in the database of a server.")

_PAGE = 100
_UNDONE = 1

_TenantOption = Annotated[
    str, typer.Option(help="Whose key it is: each tenant sees its own studies and data sets alone.")
]


def _duration(text: str) -> timedelta:
    try:
        return duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _lifetime(text: str) -> timedelta:
    found = _duration(text)
    if not found:
        raise typer.BadParameter("a key lives for a minute or longer, as 12h or 90d")
    return found


@commands.command("create", epilog="Example: reflectory keys create laptop --expires 90d")
def create(
    name: Annotated[str, typer.Argument(help="What the key is for, or who has it.")],
    tenant: _TenantOption = LOCAL,
    scope: Annotated[
        Scope,
        typer.Option(help="What it may do; each includes those before it, but `work` is apart."),
    ] = "write",
    expires: Annotated[
        timedelta | None,
        typer.Option(
            parser=_lifetime,
            metavar="TIME",
            help="After how long it ends by itself, as 12h or 90d; by default never.",
        ),
    ] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it, once and never again.

    From the first key on everybody needs one, also the local user, and also when it has ended.
    """
    # Only these commands need the database: the others start without it.
    from service.auth.api_keys import check_names, create_key

    if fault := check_names(tenant=tenant, name=name):
        raise typer.BadParameter(fault)
    with local_database(data_dir, as_json=as_json) as database:
        made = create_key(database.of(tenant), name=name, scopes=(scope,), lifetime=expires)
    _tell(made, as_json=as_json)


@commands.command("list", epilog="Example: reflectory keys list --tenant vision")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the keys, newest first, those that have ended too."""
    from storage.accounts.keys import Keys

    found: list[ApiKeyRecord] = []
    with local_database(data_dir, as_json=as_json) as database:
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
    add_columns(table, "name", "tenant", "scopes", "made", "last used", "expires", "state")
    now = datetime.now(UTC)
    for key in found:
        times = (key.created_at, key.last_used_at, key.expires_at)
        shown = ("–" if at is None else f"{at:%Y-%m-%d %H:%M}" for at in times)
        names = (escape(key.name), escape(key.tenant), " ".join(key.scopes))
        table.add_row(key.id, *names, *shown, key.state_at(now))
    Console().print(table)


@commands.command("rotate", epilog="Example: reflectory keys rotate 4f1d2c3b5a69 --overlap 7d")
def rotate(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, see `list`.")],
    overlap: Annotated[
        timedelta | None,
        typer.Option(
            parser=_duration,
            metavar="TIME",
            help="How long the old key goes on beside the new one, as 12h or 7d; by default 1d.",
        ),
    ] = None,
    expires: Annotated[
        timedelta | None,
        typer.Option(
            parser=_lifetime,
            metavar="TIME",
            help="After how long the new key ends; by default as long as the old one was made for.",
        ),
    ] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key that takes another's place, and print it, once and never again.

    Both are good for the overlap; then the old one ends by itself.
    """
    from service.auth.api_keys import OVERLAP, rotate_key
    from storage.accounts.keys import Keys
    from storage.errors import Conflict, NotFound

    with local_database(data_dir, as_json=as_json) as database:
        try:
            with database.read() as session:
                tenant = Keys(session).get(key_id).tenant
            made = rotate_key(
                database.of(tenant),
                key_id,
                overlap=OVERLAP if overlap is None else overlap,
                lifetime=expires,
            )
        except (NotFound, Conflict) as error:
            fail(str(error), REFUSED, as_json=as_json)
    _tell(made, as_json=as_json)


@commands.command("revoke", epilog="Example: reflectory keys revoke 4f1d2c3b5a69")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The key's id, see `list`.")],
    yes: YesOption = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a key open nothing any more, for ever; servers notice within two seconds."""
    from service.auth.api_keys import revoke_key
    from storage.accounts.keys import Keys
    from storage.errors import NotFound

    with local_database(data_dir, as_json=as_json) as database:
        try:
            with database.read() as session:
                found = Keys(session).get(key_id)
            confirm(
                f'Revoke key {key_id} "{found.name}" of tenant {found.tenant} for ever',
                yes=yes,
                as_json=as_json,
                undone="Nothing was revoked.",
            )
            key = revoke_key(database.of(found.tenant), key_id)
        except NotFound as error:
            fail(str(error), REFUSED, as_json=as_json)
    if as_json:
        print_json(_document(key))
    else:
        typer.echo(f"key {key.id} ({key.name}) is revoked")


@commands.command("reset", epilog="Example: reflectory keys reset --yes")
def reset(
    yes: YesOption = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove all keys once none is valid: loopback then lets the local user in without one.

    A server whose last key was revoked or has expired otherwise lets nobody in until a new one is
    made.
    """
    from service.auth.api_keys import reset_keys
    from storage.errors import Conflict

    confirm(
        "Remove all keys of all tenants, and let users of this machine in",
        yes=yes,
        as_json=as_json,
        undone="Nothing was removed.",
    )
    with local_database(data_dir, as_json=as_json) as database:
        try:
            removed = reset_keys(database)
        except Conflict as error:
            fail(str(error), REFUSED, as_json=as_json)
    if as_json:
        print_json({"removed": removed})
    else:
        typer.echo(f"{len(removed)} keys are removed; on loopback no key is needed now")


def _tell(made: "NewKey", *, as_json: bool) -> None:
    record = made.record
    if as_json:
        print_json({**_document(record), "key": made.text})
        return
    # The key alone goes to stdout, so that a script can take it from there.
    until = "" if record.expires_at is None else f", until {record.expires_at:%Y-%m-%d %H:%M} UTC"
    typer.echo(
        f"key {record.id} of tenant {record.tenant}, for {', '.join(record.scopes)}{until}; "
        "it is shown here and never again:",
        err=True,
    )
    typer.echo(made.text)


def _document(key: ApiKeyRecord) -> dict[str, Any]:
    times = ("created_at", "last_used_at", "revoked_at", "expires_at")
    shown = {name: at and at.isoformat() for name in times for at in [getattr(key, name)]}
    state = key.state_at(datetime.now(UTC))
    return {**vars(key), "scopes": list(key.scopes), **shown, "state": state}
