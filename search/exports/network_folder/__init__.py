"""The folder of a trial of a network of others: its file, what is said of it, and how it is run."""

from search.exports.network_folder.compressed_facts import CompressedFacts
from search.exports.network_folder.compressed_files import REPORT_HTML, REPORT_JSON, network_folder
from search.exports.network_folder.compressed_rows import compressed_facts

__all__ = [
    "REPORT_HTML",
    "REPORT_JSON",
    "CompressedFacts",
    "compressed_facts",
    "network_folder",
]
