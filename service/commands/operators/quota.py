"""`quota`: what a tenant may have and has; operators set it in the database itself."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    print_json,
)
from service.commands.operators.local_database import local_database
from service.commands.shown.tables import add_columns, empty_table

commands = typer.Typer(help="What tenants may have, and what they have.")

_UNLIMITED = "unlimited"
_DEFAULT = "default"
_MOST_DIGITS = 18
_WAYS = (
    f"a whole number of at most {_MOST_DIGITS} digits, `{_UNLIMITED}`, or `{_DEFAULT}` for what "
    "the server's settings say"
)


def _limit(text: str | None) -> str | None:
    is_number = text is not None and text.isascii() and text.isdigit()
    if text in (None, _UNLIMITED, _DEFAULT) or (is_number and len(text) <= _MOST_DIGITS):
        return text
    raise typer.BadParameter(f"{text!r} is no limit; allowed are {_WAYS}")


def _weight(text: str | None) -> str | None:
    try:
        if text in (None, _DEFAULT) or 0.01 <= float(text) <= 100:
            return text
    except ValueError:
        pass
    raise typer.BadParameter(f"{text!r} is no weight; allowed are 0.01 to 100, or `{_DEFAULT}`")


def _option(what: str) -> Any:
    return typer.Option(metavar="LIMIT", help=what, callback=_limit, show_default=False)


@commands.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what your tenant may have of each thing that is limited, and what it has."""
    if context.invoked_subcommand is not None:
        return
    with connected(server, data_dir, as_json=as_json) as client:
        quota = client.quota()
    if as_json:
        print_json(quota)
        return
    table = empty_table(f"tenant {escape(quota.tenant)}, weight {quota.weight:g}")
    table.add_column("quota", no_wrap=True)
    add_columns(table, "used", "limit", numbers=True)
    table.add_column("")
    for name, item in quota.items.items():
        limit = _UNLIMITED if item.limit is None else f"{item.limit:,}"
        table.add_row(escape(name), f"{item.used:,}", limit, escape(item.unit))
    Console().print(table)


@commands.command("set", epilog="Example: reflectory quota set vision --slots 4 --weight 2")
def set_quota(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose it is.")],
    studies: Annotated[str | None, _option("Studies in progress.")] = None,
    queued_trials: Annotated[str | None, _option("Trials that wait for a slot.")] = None,
    slots: Annotated[str | None, _option("Slots at once.")] = None,
    stored_bytes: Annotated[str | None, _option("Bytes of all that is stored.")] = None,
    uploads: Annotated[str | None, _option("Uploads at once, per API process.")] = None,
    streams: Annotated[str | None, _option("Event streams at once, per API process.")] = None,
    streams_per_key: Annotated[str | None, _option("Of these, with one key.")] = None,
    requests_per_minute: Annotated[str | None, _option("Requests, per API process.")] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            callback=_weight,
            show_default=False,
            help="Share of the slots beside other tenants; by default 1.",
        ),
    ] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set what a tenant may have: whole numbers, `unlimited`, or `default` for the settings'.

    What is not named stays as it is. Servers notice within two seconds.
    """
    from service.auth.api_keys import check_names
    from storage.accounts.quotas import Quotas

    if fault := check_names(tenant=tenant, name="quota"):
        raise typer.BadParameter(fault)
    named = {
        "studies": studies,
        "queued_trials": queued_trials,
        "slots": slots,
        "stored_bytes": stored_bytes,
        "uploads": uploads,
        "streams": streams,
        "streams_per_key": streams_per_key,
        "requests_per_minute": requests_per_minute,
        "weight": weight,
    }
    with local_database(data_dir, as_json=as_json) as database, database.write() as session:
        quotas = Quotas(session)
        kept = quotas.overridden().get(tenant, {})
        for name, text in named.items():
            if text == _DEFAULT:
                kept.pop(name, None)
            elif text == _UNLIMITED:
                kept[name] = None
            elif text is not None:
                kept[name] = float(text) if name == "weight" else int(text)
        quotas.override(tenant, kept)
        quota = quotas.of(tenant)
    if as_json:
        print_json({"tenant": tenant, **asdict(quota)})
    else:
        typer.echo(f"tenant {tenant}: {_told(asdict(quota))}")


@commands.command("list", epilog="Example: reflectory quota list")
def list_quotas(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """List what was set for tenants in place of the settings' defaults."""
    from storage.accounts.quotas import Quotas

    with local_database(data_dir, as_json=as_json) as database, database.read() as session:
        found = Quotas(session).overridden()
    if as_json:
        print_json([{"tenant": tenant, **given} for tenant, given in found.items()])
        return
    for tenant, given in found.items():
        typer.echo(f"tenant {tenant}: {_told(given)}")
    if not found:
        typer.echo("all tenants have what the settings say")


def _told(quota: Mapping[str, int | float | None]) -> str:
    shown = (
        f"{name} {_UNLIMITED if value is None else f'{value:,}'}" for name, value in quota.items()
    )
    return ", ".join(shown)
