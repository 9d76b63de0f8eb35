"""Modules, trained: settings checked, members followed, and what a stored result is known by."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from firstguess._version import __version__
from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.data.items import tensors
from firstguess.ensemble.trained import TrainedMembers
from firstguess.ensemble.training_loop import Task, follow
from firstguess.ensemble.training_plan import Plan, mean_loss, plan
from firstguess.ensemble.training_store import MemberStore, address
from firstguess.modules.labelled import Labelled, labelled
from firstguess.modules.module_trainer import ModuleTrainer
from firstguess.modules.optimizers import recipe
from firstguess.theory.training_problem import level_of

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
    forward: Any = None,
    more: dict[str, Any] | None = None,
    **options: Any,
) -> TrainedMembers:
    """`fg.train` of an instance, a class or a factory. `more`: what else `ModuleTrainer` takes."""
    train = labelled(what, data, "data", forward)
    held = None if test is None else labelled(what, test, "test", forward)
    if len(np.unique(train.classes())) < 2:
        raise InvalidInput("points of two classes at least", got="one class only", where="data")
    lr, optimizer = options["lr"], options["optimizer"]
    own = not isinstance(optimizer, (str, type)) and callable(optimizer) and not isinstance(optimizer, partial)
    how = plan(train.n, named=False, **options)
    if threads is not None:
        threads = checks.count(threads, 1, "number of threads", "train(threads)", "threads=2")
    made = recipe(optimizer, None if own and lr == LR else lr, how.decay, scheduler)
    make = partial(
        ModuleTrainer,
        what,
        train,
        held,
        seed=how.seed,
        recipe=made,
        batch=how.batch,
        loss=how.loss,
        threads=threads,
        inits=checks.count(inits, 1, "number of initializations", "train(inits)", "inits=50"),
        **(more or {}),
    )
    asked = (more or {}).get("strategy")
    trainer = make() if store is None or asked else make(strategy="loop")
    if classes is not None and classes != trainer.classes:
        raise InvalidInput(f"{trainer.classes} classes, what the model gives", got=classes, where="train(classes)")
    labels = train.classes()
    task = Task(
        labels,
        None if held is None else held.classes(),
        trainer.classes,
        how.looks,
        mean_loss(how.loss) if isinstance(how.loss, str) else trainer.mean_loss,
        level_of(level, trainer.classes, labels),
        how.seed,
    )
    rates = trainer.rates(how.steps)  # a scheduler that has too few is refused now
    kept = None
    if store is not None:
        kept = MemberStore.at(store, _address(trainer, how, rates, train, held))
        trainer = trainer if asked else _as_before(kept, make)
    origin = {
        "firstguess": __version__,
        "torch": torch.__version__,
        "model": trainer.model,
        "optimizer": trainer.optimizer if not isinstance(optimizer, str) else optimizer,
        "batch": how.batch,
        "loss": how.loss if isinstance(how.loss, str) else _name(how.loss),
        "weight_decay": how.decay,
        "seed": how.seed,
        "lr": rates[0],
        "steps": how.steps,
    }
    return follow(
        trainer, task, what=trainer.model, inits=inits, start=start, provenance=origin, store=kept, progress=progress
    )


def _name(what: Any) -> str:
    return getattr(what, "__qualname__", type(what).__qualname__)


def _address(trainer: ModuleTrainer, how: Plan, rates: list[float], train: Labelled, held: Labelled | None) -> str:
    """What members' numbers depend on. Functions are known by what they do: to the first member, to learning rates."""
    arrays: dict[str, Any] = {"looks": how.looks, "rates": np.array(rates)}
    for where, points in (("data", train), ("test", held)):
        if points is not None:
            arrays |= {f"{where} {key}": leaf.numpy() for key, leaf in tensors(points.batch.inputs).items()}
            arrays[f"{where} labels"] = points.classes()
    arrays |= trainer.fingerprint()
    return address(
        model=trainer.model,
        optimizer=trainer.settings(),
        batch=how.batch,
        loss=how.loss if isinstance(how.loss, str) else _name(how.loss),
        seed=how.seed,
        torch=torch.__version__,
        **arrays,
    )


def _as_before(kept: MemberStore, make: Callable[..., ModuleTrainer]) -> ModuleTrainer:
    """One by one or by vmap, whichever was faster when this store was begun: both give the same but for rounding."""
    path = kept.folder / f"train-{kept.key}.json"
    try:
        way = cast("dict[str, Any]", json.loads(path.read_text()))["strategy"]
    except (OSError, ValueError, KeyError, TypeError):
        way = None
    if way in ("loop", "vmap"):
        return make(strategy=way)
    trainer = make()
    path.write_text(json.dumps({"strategy": "vmap" if trainer.group > 1 else "loop"}))
    return trainer
