"""The fork server of a machine: attempts as processes that are kept within their memory."""
