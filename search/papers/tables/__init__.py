"""The tables and figures of the papers as data, one file each, and their registry."""

from collections.abc import Mapping

from search.papers.paper_table import Table
from search.papers.tables.addition_table import ADDITION
from search.papers.tables.copy_table import COPY
from search.papers.tables.depth_table import DEPTH
from search.papers.tables.dizzy_table import DIZZY_COPY
from search.papers.tables.highway_table import HIGHWAY
from search.papers.tables.memory_table import MEMORY
from search.papers.tables.multilabel_table import MULTILABEL
from search.papers.tables.permuted_mnist import PERMUTED_MNIST
from search.papers.tables.pixel_mnist import PIXEL_MNIST
from search.papers.tables.ptb_characters import PTB_CHARACTERS
from search.papers.tables.ptb_words import PTB_WORDS
from search.papers.tables.sequences_table import SEQUENCES
from search.papers.tables.ucr_table import UCR

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        UCR,
        ADDITION,
        COPY,
        MEMORY,
        PIXEL_MNIST,
        PERMUTED_MNIST,
        SEQUENCES,
        DEPTH,
        MULTILABEL,
        PTB_WORDS,
        PTB_CHARACTERS,
        HIGHWAY,
        DIZZY_COPY,
    )
}
"""Every table by its name."""
