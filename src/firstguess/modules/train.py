"""`fg.train`: many initializations of a description or a module, trained for real, and what their guesses do."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.ensemble.trained import TrainedMembers
from firstguess.ensemble.training_loop import Progress
from firstguess.ensemble.training_plan import Start
from firstguess.modules.named import named
from firstguess.network.network import Network

if TYPE_CHECKING:
    import torch

    from firstguess.modules.choice import Strategy
    from firstguess.modules.feeding import Forward
    from firstguess.modules.fresh import Redrawn
    from firstguess.modules.initializers import Init
    from firstguess.modules.outputs import Pick

_WIDTH = 1000


@checks.known_options
def train(
    what: object,
    *,
    data: Any,
    test: Any = None,
    inits: int = 50,
    start: Start = "any",
    optimizer: Any = "adam",
    lr: float | Callable[[int], float] = 1e-3,
    batch: int | None = None,
    epochs: int | None = None,
    steps: int | Sequence[int] | None = None,
    loss: Any = "cross-entropy",
    scheduler: Any = None,
    weight_decay: float = 0.0,
    width: int = _WIDTH,
    level: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    classes: int | None = None,
    init: Init = None,
    logits: Pick = None,
    forward: Forward | None = None,
    redraw: Redrawn = None,
    scale: float | None = None,
    device: torch.device | str | None = None,
    strategy: Strategy | None = None,
) -> TrainedMembers:
    """Train many initializations, and look at their guesses, accuracies and losses on the way.

    Member i depends on (seed, i) only: its weights, and the order in which it sees the data. Ctrl-C keeps the curves so
    far; a member that diverges (NaN or Inf) is a result, and the others go on.

    Args:
        what: A `Network` or its text; or an `nn.Module`, a class or a factory that makes one.
        data: Labelled points: a pair (x, y), `Data`, a name.
        test: Held-out points, likewise. Behind a BatchNorm a description's are normalized by the statistics of all
            training points at that step, which running statistics follow.
        inits: How many networks are trained.
        start: "any"; "even" (or "neutral"): at most 1.1 of an even share; "biased": at least 0.9. Starts are
            drawn and looked at until there are so many; the others are not trained.
        optimizer: "gd" (all points), "sgd" (mini-batches of `batch`), "adam" (with or without `batch`), as torch
            has them. For modules also a class of `torch.optim`, or a function of the parameters that makes one.
        lr: The learning rate, or a function of the step.
        batch: Size of mini-batches. Epochs are reshuffled; the last batch of one may be smaller.
        epochs: How many; or
        steps: how many, or which to look at (default: 0–7, then ten a decade).
        loss: "cross-entropy", or "squared": ½ Σ (f − one-hot)². For modules also a function of outputs and labels.
        scheduler: Modules only: a function of the optimizer that makes a scheduler, stepped after every step.
        weight_decay: As torch's optimizers have it: added to the gradient.
        width: Of layers of a description that name none.
        level: Of the largest share, for `absorption`: by default a fifth of the way from the labels' largest share to
            1, which is 0.6 of two even classes.
        seed: Of weights and orders.
        threads: By default one a core.
        store: A folder. Members that were trained before with the same settings and data are read from it, so a
            training that was stopped in any way goes on where it was.
        progress: Called with (steps done by all networks, steps in all).
        classes: For a text; by default those of the labels. Else a check.
        init, logits, forward, redraw, scale, device: Modules only: as for `fg.measure`. Parameters that require no
            gradient stay as they are drawn.
        strategy: Modules only: "loop" trains one member at a time in each thread, "vmap" several at once; by default
            whichever the first steps show to be faster. Models with a BatchNorm or dropout are trained one by one.

    >>> from firstguess.data import two_blobs
    >>> net = "dense(weight_var=2) > relu > dense(weight_var=2)"
    >>> r = train(net, data=two_blobs(50, 20), inits=4, width=30, optimizer="gd", lr=0.1, steps=50)
    >>> r.largest.draws.shape == (4, len(r.steps)), bool(r.loss.mean[-1] < r.loss.mean[0])
    (True, True)
    """
    options: dict[str, Any] = {
        "lr": lr,
        "batch": batch,
        "epochs": epochs,
        "steps": steps,
        "optimizer": optimizer,
        "loss": loss,
        "weight_decay": weight_decay,
        "seed": seed,
    }
    common: dict[str, Any] = {
        "inits": inits,
        "start": start,
        "level": level,
        "threads": threads,
        "store": store,
        "progress": progress,
        "classes": classes,
    }
    more = checks.given(init=init, logits=logits, redraw=redraw, scale=scale, device=device, strategy=strategy)
    what = named(what)
    if isinstance(what, Network | str):
        from firstguess.ensemble.training_engine import train_description

        if scheduler is not None:
            raise NotCovered(
                "a learning rate that is a function of the step, for a description",
                got="scheduler=",
                where="train(scheduler)",
                hint="lr=lambda step: 1e-3 * 0.99**step",
            )
        if more or forward is not None:
            raise InvalidInput(
                "an option of train for a description", got=f"{next(iter([*more, 'forward']))}=", where="train"
            )
        return train_description(what, data, test, width=width, **options, **common)
    if not callable(what):
        raise InvalidInput(
            "a Network, its text, an nn.Module, a class or a factory",
            got=f"{type(what).__module__}.{type(what).__qualname__}",
            where="train(what)",
            hint='fg.train("dense > relu > dense", data=(x, y), steps=1000)',
        )
    if width != _WIDTH:
        raise InvalidInput("no width: a module has its own", got=width, where="train(width)")
    from firstguess.modules.train_module import train_module

    with warnings.catch_warnings():
        # vmap says that an operation has no batching rule: whether that is slow is timed. Here, and not where members
        # are trained, because filters are those of all threads.
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        return train_module(what, data, test, scheduler=scheduler, forward=forward, more=more, **options, **common)
