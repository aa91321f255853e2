"""The HTTP API, one room per aggregate: `routes` has its endpoints, `schemas` its JSON."""
