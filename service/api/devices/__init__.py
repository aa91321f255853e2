"""The devices that studies run on."""
