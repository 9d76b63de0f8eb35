"""`ModelOptions`: the rarer options of every verb that draws a network, typed, documented and settled once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import torch

    from firstguess.ensemble.member_statistics import Probe
    from firstguess.modules.call_model import Forward
    from firstguess.modules.hooks.session import Node
    from firstguess.modules.members.initializers import Init, Redrawn
    from firstguess.modules.members.sources import Mode
    from firstguess.modules.outputs import Pick
    from firstguess.modules.stacked import Strategy

MEMORY = 2e9  # bytes
WIDTH = 1000  # of the layers of a description that name none


class ModelOptions(TypedDict, total=False):
    """Options of `measure`, `diagnose` and `assert_even`; `explain_guess`, `measure_gradients` and `train` take most.

    Modules only: init, logits, forward, mode, node, device, strategy, trained, redraw and scale. Descriptions only:
    reduce, and threads but in `train`. A verb refuses an option that it has no use for. None is as good as none.

    Args:
        reduce: Use exact reductions where they apply; they draw other numbers from the same distribution.
        memory: Bytes that the engine may use (default: 2e9).
        probe: Which layers are measured: "all", those with "weights", or the "output" only, which costs least.
        moments: With 4, skewness and kurtosis of pre-activations by layer as `shapes`, and a finding where they are not
            Gaussian, as theory takes them (default: 2). It costs a few more passes over the units' values.
        dtype: To compute in: by default a module's own, of a description float32.
        init: "kaiming_normal", "kaiming_uniform", "xavier_normal", "xavier_uniform", "orthogonal", a pair
            (weight_var, bias_var), or a function that is applied to every submodule.
        logits: Which part of the output they are: a key or attribute, an index, or a function.
        forward: How the model is called, a function of model and batch that returns the output, such as
            `lambda model, batch: model(batch["image"])`. The batch is as your loader gives it, with labels and texts
            (for arrays, (x, y) or x). By default inputs are the model's arguments, or a dict its one argument.
        mode: What BatchNorm does: "train" (the default) normalizes by the batch, "eval" by running statistics.
            Dropout is off.
        node: "position" (the default): a unit is a channel at a position; "channel": positions are data points.
        device: Where to compute.
        strategy: "loop" runs one member at a time, "vmap" several at once; by default whichever the first members show
            to be faster. Models with a BatchNorm or dropout are trained one by one.
        trained: An instance's values may not be those of its constructor, and are followed only where training would
            not give them; all of it is re-initialized, unless `redraw` says otherwise.
        redraw: What to re-initialize, the rest stays: a name of parameters or modules ("classifier*"), a module,
            a list of these, "head" (the last layers before the logits) or "all". By default what looks trained is kept,
            and a finding says what that is; classes and factories are drawn by their constructor.
        scale: Multiply all weights by this, drawn and kept ones: parameters of two or more axes, but for those of norms
            and those named a bias.
        threads: By default one per core.
    """

    reduce: bool
    memory: float | None
    probe: Probe | None
    moments: Literal[2, 4] | None
    dtype: torch.dtype | None
    init: Init
    logits: Pick
    forward: Forward | None
    mode: Mode | None
    node: Node | None
    device: torch.device | str | None
    strategy: Strategy | None
    trained: bool
    redraw: Redrawn
    scale: float | None
    threads: int | None


OPTIONS = tuple(ModelOptions.__annotations__)
OF_MODULES = tuple(name for name in OPTIONS if name not in ("reduce", "threads", "forward"))  # `ModuleEngine` takes


def settled(options: ModelOptions) -> dict[str, Any]:
    """Options that say something: no None, no defaults that an engine might not take.

    >>> settled({"trained": True, "mode": None, "moments": 2})
    {'trained': True, 'redraw': 'all'}
    """
    found: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not found.get("trained"):
        found.pop("trained", None)
    else:
        found.setdefault("redraw", "all")
    if found.get("moments") == 2:
        del found["moments"]
    return found
