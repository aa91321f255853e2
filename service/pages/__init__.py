"""The routes of the pages for people."""
