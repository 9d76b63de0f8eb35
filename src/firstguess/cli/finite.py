"""`firstguess predict --width … --dimension …`: what finite size adds, and from which width on it adds little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstguess.base.errors import InvalidInput
from firstguess.cli.output import bar, print_json, print_pairs, print_table

if TYPE_CHECKING:
    from firstguess.network.inputs import Inputs
    from firstguess.network.network import Network
    from firstguess.theory.prediction import Prediction


def closed_form(network: Network, inputs: Inputs, points: int | None, width: int | None, seed: int) -> Prediction:
    """The prediction for i.i.d. inputs at this size, with a progress bar: a chain of networks takes seconds."""
    import firstguess as fg

    with bar("finite size") as tick:
        return fg.predict(network, inputs=inputs, points=points, width=width, seed=seed, progress=tick)


def show(prediction: Prediction, infinite: Prediction | None) -> None:
    """Infinite size beside this one; nothing for a prediction that has no size."""
    size = prediction.finite_size
    if size is None or infinite is None:
        return
    sizes = [f"{name} {value}" for name, value in (("width", size.width), ("dimension", size.dimension)) if value]
    one, other = infinite.guesses, prediction.guesses
    rows = [
        (name, f"{a:.4f}", f"{b:.4f}", f"{b - a:+.4f}")
        for name, a, b in (
            ("standard deviation of a class's share", one.std(), other.std()),
            ("average share of the largest class", one.expected_max(), other.expected_max()),
            ("chance that one class gets over 90 %", one.prob_max_above(0.9), other.prob_max_above(0.9)),
        )
    ]
    print_table("", ("guesses", "infinite size", ", ".join(sizes), "added"), rows)


def needed(
    network: Network, tolerance: float, mean_square: float | None, variance: float | None, *, alone: bool, json: bool
) -> None:
    """The width from which on infinite theory is right to a tolerance."""
    import firstguess as fg

    if not alone:
        raise InvalidInput(
            "--width-needed without --data", got="both", hint="leave --data out: it is for i.i.d. inputs"
        )
    inputs = fg.Inputs(mean_square=mean_square or 0.0, variance=1.0 if variance is None else variance)
    width = fg.width_needed(network, tolerance=tolerance, inputs=inputs)
    if json:
        print_json({"network": network.to_dict(), "tolerance": tolerance, "width_needed": width})
        return
    wide = f"{width:,}".replace(",", " ")
    said = f"{wide}: from there on infinite theory has the standard deviation of a class's share right to {tolerance:g}"
    print_pairs("Width needed", [("network", f"{network}  ({network.classes} classes)"), ("width", said)])
