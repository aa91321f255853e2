"""The record of what was done, and with which key."""
