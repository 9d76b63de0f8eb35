"""`fg.train`: many initializations of a description or a module, trained for real, and what their guesses do."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack, cast

import numpy as np
import torch

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.data.items import tensors
from firstguess.ensemble.trained import TrainedMembers
from firstguess.ensemble.training_engine import train_description
from firstguess.ensemble.training_loop import MemberStore, Plan, Progress, Start, follow, member_store, plan
from firstguess.modules.call_model import Labelled, labelled
from firstguess.modules.members.sources import named
from firstguess.modules.optimizers import recipe
from firstguess.modules.options import WIDTH, ModelOptions, settled
from firstguess.modules.trainer import ModuleTrainer
from firstguess.network.network import Network

_TAKEN = ("init", "logits", "forward", "redraw", "scale", "device", "strategy", "threads")


@checks.takes(_TAKEN)
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
    width: int = WIDTH,
    level: float | None = None,
    seed: int = 0,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    classes: int | None = None,
    **more: Unpack[ModelOptions],
) -> TrainedMembers:
    """Train many initializations, and look at their guesses, accuracies and losses on the way.

    Member i depends on (seed, i) only, but for rounding: its weights, and the order in which it sees the data. Ctrl-C
    keeps the curves so far; a member that diverges (NaN or Inf) is a result, and the others continue.

    Args:
        what: A `Network` or its text; or an `nn.Module`, a class or a factory that makes one.
        data: Labelled points: a pair (x, y), `Data`, a name.
        test: Held-out points, likewise. After a BatchNorm a description's are normalized by the statistics of all
            training points at that step, which running statistics follow.
        inits: How many networks are trained.
        start: "any"; "even" (or "neutral"): at most 1.1 of an even share; "biased": at least 0.9. Starts are
            drawn and evaluated until there are enough; the others are not trained.
        optimizer: "gd" (all points), "sgd" (mini-batches of `batch`), "adam" (with or without `batch`), as torch
            has them. For modules also a class of `torch.optim`, or a function of the parameters that makes one.
        lr: The learning rate, or a function of the step.
        batch: Size of mini-batches. Epochs are reshuffled; the last batch of one may be smaller.
        epochs: How many; or
        steps: how many, or which to look at (default: 0–7, then ten per decade).
        loss: "cross-entropy", or "squared": ½ Σ (f − one-hot)². For modules also a function of outputs and labels.
        scheduler: Modules only: a function of the optimizer that makes a scheduler, stepped after every step.
        weight_decay: As torch's optimizers have it: added to the gradient.
        width: Width of layers of a description that name none.
        level: Level of the largest share, for `absorption`: by default a fifth of the way from the labels' largest
            share to 1, which is 0.6 of two even classes.
        seed: Random seed of weights and orders.
        store: A folder. Members that were trained before with the same settings and data are read from it, so a
            training that was stopped in any way resumes where it was.
        progress: Called with (steps done by all networks, steps in all).
        classes: For a text; by default those of the labels. Else a check.
        more: From `ModelOptions`: threads, and for modules only init, logits, forward, redraw, scale, device and
            strategy. Parameters that require no gradient stay as they are drawn.

    >>> from firstguess.data import two_blobs
    >>> net = "dense(weight_var=2) > relu > dense(weight_var=2)"
    >>> r = train(net, data=two_blobs(50, 20), inits=4, width=30, optimizer="gd", lr=0.1, steps=50)
    >>> r.largest.draws.shape == (4, len(r.steps)), bool(r.loss.mean[-1] < r.loss.mean[0])
    (True, True)
    """
    known = settled(more)
    options: dict[str, Any] = {
        "lr": lr, "batch": batch, "epochs": epochs, "steps": steps, "optimizer": optimizer, "loss": loss,
        "weight_decay": weight_decay, "seed": seed, "inits": inits, "start": start, "level": level, "store": store,
        "progress": progress, "classes": classes, "threads": known.pop("threads", None),
    }  # fmt: skip
    what = named(what)
    if isinstance(what, Network | str):
        if scheduler is not None:
            expected = "a learning rate that is a function of the step, for a description"
            hint = "lr=lambda step: 1e-3 * 0.99**step"
            raise NotCovered(expected, got="scheduler=", where="train(scheduler)", hint=hint)
        for name in known:
            raise InvalidInput("an option of train for a description", got=f"{name}=", where="train")
        return train_description(what, data, test, width=width, **options)
    if not callable(what):
        raise checks.no_model(what, "train(what)", 'fg.train("dense > relu > dense", data=(x, y), steps=1000)')
    if width != WIDTH:
        raise InvalidInput("no width: a module has its own", got=width, where="train(width)")

    with warnings.catch_warnings():
        # vmap says that an operation has no batching rule: whether that is slow is timed. Here, and not where members
        # are trained, because filters are those of all threads.
        warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
        return train_module(what, data, test, scheduler=scheduler, more=known, **options)


# Modules, trained: settings checked, members followed, and what a stored result is known by.

LR = 1e-3  # where nothing is said


def train_module(
    what: Callable[..., Any],
    data: Any,
    test: Any,
    *,
    inits: int,
    start: Any,
    level: float | None,
    threads: int | None,
    store: Any,
    progress: Any,
    classes: int | None,
    scheduler: Any = None,
    more: dict[str, Any],
    **options: Any,
) -> TrainedMembers:
    """`fg.train` of an instance, a class or a factory. `more`: what else `ModuleTrainer` takes."""
    forward = more.pop("forward", None)
    train = labelled(what, data, "data", forward)
    held = None if test is None else labelled(what, test, "test", forward)
    checks.two_classes(train.classes())
    lr, optimizer = options["lr"], options["optimizer"]
    own = not isinstance(optimizer, (str, type)) and callable(optimizer) and not isinstance(optimizer, partial)
    how = plan(train.n, named=False, **options)
    if threads is not None:
        threads = checks.count(threads, 1, "number of threads", "train(threads)", "threads=2")
    made = recipe(optimizer, None if own and lr == LR else lr, how.decay, scheduler)
    inits = checks.count(inits, 1, "number of initializations", "train(inits)", "inits=50")
    more |= {"seed": how.seed, "batch": how.batch, "loss": how.loss, "threads": threads, "inits": inits}
    make = partial(ModuleTrainer, what, train, held, recipe=made, **more)
    asked = more.get("strategy")
    trainer = make() if store is None or asked else make(strategy="loop")
    if classes is not None and classes != trainer.classes:
        raise InvalidInput(f"{trainer.classes} classes, what the model gives", got=classes, where="train(classes)")
    loss = None if isinstance(how.loss, str) else trainer.mean_loss
    task = how.task(train.classes(), None if held is None else held.classes(), trainer.classes, level, loss)
    rates = trainer.rates(how.steps)  # a scheduler that has too few is refused now
    kept = None
    if store is not None:
        kept = member_store(store, **_dependencies(trainer, how, rates, train, held))
        trainer = trainer if asked else _as_before(kept, make)
    known = {} if isinstance(optimizer, str) else {"optimizer": trainer.optimizer}
    origin = how.provenance(rates[0], model=trainer.model, **known)
    said: dict[str, Any] = {"what": trainer.model, "inits": inits, "start": start, "progress": progress}
    return follow(trainer, task, provenance=origin, store=kept, **said)


def _dependencies(
    trainer: ModuleTrainer, how: Plan, rates: list[float], train: Labelled, held: Labelled | None
) -> dict[str, Any]:
    """What members' numbers depend on. Functions are known by what they do: to the first member, to learning rates."""
    arrays: dict[str, Any] = {"looks": how.looks, "rates": np.array(rates)}
    for where, points in (("data", train), ("test", held)):
        if points is not None:
            arrays |= {f"{where} {key}": leaf.numpy() for key, leaf in tensors(points.batch.inputs).items()}
            arrays[f"{where} labels"] = points.classes()
    found = {"model": trainer.model, "optimizer": trainer.settings(), "batch": how.batch, "seed": how.seed}
    return {**found, "loss": how.recorded["loss"], "torch": torch.__version__, **arrays, **trainer.fingerprint()}


def _as_before(kept: MemberStore, make: Callable[..., ModuleTrainer]) -> ModuleTrainer:
    """One by one or by vmap, whichever was faster when this store was begun: both give the same but for rounding."""
    path = kept.folder / f"{kept.prefix[:-1]}.json"
    try:
        way = cast("dict[str, Any]", json.loads(path.read_text()))["strategy"]
    except (OSError, ValueError, KeyError, TypeError):
        way = None
    if way in ("loop", "vmap"):
        return make(strategy=way)
    trainer = make()
    path.write_text(json.dumps({"strategy": "vmap" if trainer.group > 1 else "loop"}))
    return trainer
