"""Commands that work on the server itself, most of them without asking one."""
