"""A fork server that takes no request and never ends by itself."""

import time

if __name__ == "__main__":
    time.sleep(600)
