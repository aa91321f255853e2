"""The command line, one file per group of commands; `service.cli` puts them together."""
