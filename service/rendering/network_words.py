"""What pages call the trials of a network of others."""

from collections.abc import Mapping

from search.graphs.network_trial import BITS, STRUCTURE, WHOLE

SHORT_FORMS: Mapping[str, str] = {
    WHOLE: "as it was uploaded",
    BITS: "fewer bits",
    STRUCTURE: "low rank and fewer bits",
}
"""By a trial's form, which stands where others have a parametrization."""
