"""How the hypervolume of a front grew."""

from collections.abc import Sequence

from search.documents.fronts import HypervolumePoint
from service.figures.style import Figure, Json, Theme, finite, nothing, plain, text


def growth_figure(
    changes: Sequence[HypervolumePoint], *, epochs_trained: int, theme: Theme = "light"
) -> Json:
    """The hypervolume over the epochs that all trials trained.

    It stays where it is from one change of the front to the next, and until now.
    """
    title = "Growth of the hypervolume over epochs trained by all trials"
    known = [
        (change, epochs, volume)
        for change in changes
        if (epochs := change.epochs_trained) is not None
        and (volume := finite(change.hypervolume)) is not None
    ]
    if len(known) < 2:
        return nothing(theme, title, "The front has not changed twice yet.")
    figure = Figure(theme, title)
    x = [float(epochs) for _, epochs, _ in known]
    y = [volume for _, _, volume in known]
    figure.data.append(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [*x, float(max(epochs_trained, known[-1][1]))],
            "y": [*y, y[-1]],
            "customdata": [*(change.trial for change, _, _ in known), None],
            "hovertext": [
                *(
                    text(
                        ("" if change.trial is None else f"trial {change.trial}: ")
                        + f"{volume:.4g} after {epochs:,} epochs, {change.points} points"
                    )
                    for change, epochs, volume in known
                ),
                f"{y[-1]:.4g} now",
            ],
            "hoverinfo": "text",
            "line": {"shape": "hv", "color": figure.shades.accent, "width": 2},
            "marker": {
                "color": figure.shades.accent,
                "size": [6] * len(known) + [0],
            },
            "showlegend": False,
        }
    )
    figure.layout |= {
        "xaxis": figure.axis("epochs trained by all trials", rangemode="tozero"),
        "yaxis": figure.axis("hypervolume"),
        "height": 280,
    }
    figure.caption.append(f"{len(known):,} changes of the front, {y[-1]:.4g} now.")
    return plain(figure.json())
