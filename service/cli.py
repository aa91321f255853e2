"""The command line: `reflectory <command>`.

Exit codes: 0 done, 1 the study or a file did not come to a good end, 2 wrong usage, 3 the server
refused, 4 no server answers.
"""

import typer

from service.commands import demo, results, serve, studies

_app = typer.Typer(
    name="reflectory",
    help="How small and how fast can this network get before it loses accuracy?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_app.command()(serve.serve)
_app.command()(studies.submit)
_app.command()(studies.watch)
_app.command("list")(studies.list_studies)
_app.command()(results.front)
_app.command()(results.download)
_app.command()(studies.cancel)
_app.command()(results.catalog)
for _hidden in (serve.api, serve.coordinator, serve.dashboard, demo.demo):
    _app.command(hidden=True)(_hidden)


def main() -> None:
    """Run the command that the arguments name."""
    _app()


if __name__ == "__main__":
    main()
