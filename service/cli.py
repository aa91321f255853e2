"""The command line: `reflectory <command>`.

Exit codes: 0 done, 1 the study or a file did not come to a good end, 2 wrong usage, 3 the server
refused, 4 no server answers.
"""

import typer

from service.commands import datasets, demo, results, serve, steering, studies

application = typer.Typer(
    name="reflectory",
    help="How small and how fast can this network get before it loses accuracy?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
application.command()(serve.serve)
application.command()(studies.submit)
application.command()(studies.watch)
application.command("list")(studies.list_studies)
application.command()(results.front)
application.command()(results.importance)
application.command()(results.download)
application.command()(studies.cancel)
application.command()(steering.pause)
application.command()(steering.resume)
application.command()(steering.budget)
application.command()(steering.enqueue)
application.command()(steering.delete)
application.command()(results.catalog)
application.add_typer(datasets.commands, name="datasets")
for _hidden in (serve.api, serve.coordinator, serve.dashboard, demo.demo):
    application.command(hidden=True)(_hidden)


def main() -> None:
    """Run the command that the arguments name."""
    application()


if __name__ == "__main__":
    main()
