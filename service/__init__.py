"""The service: HTTP, settings, the command line, and the processes of one machine."""
