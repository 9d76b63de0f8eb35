"""`LightningWatch`: a watch as a callback of Lightning's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstguess.base.checks import optional
from firstguess.base.errors import InvalidInput
from firstguess.watch.loop import Watch
from firstguess.watch.seen import WatchedTraining

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        Callback = optional("pytorch_lightning", "lightning", "firstguess.watch.LightningWatch").Callback


class LightningWatch(Callback):
    """A callback: `Trainer(callbacks=[LightningWatch()])`. Numbers go to all of the trainer's loggers.

    Warns (`fg.EarlyEvaluation`) when a validation begins before the bias of the start is absorbed; not for the sanity
    check, which is before training. With several processes the first one looks, and sharded models are refused.

    Args:
        data: The points to look at are taken from here; by default from the training's DataLoader.
        every: As for `fg.Watch`, and likewise all other options. A step is an update (`trainer.global_step`). The
            module is called as `module(x)`; one without a `forward` of its own needs one here, such as
            `forward=lambda module, batch: module.net(batch[0])`.
        predict: Predict the training too, with the trainer's one optimizer, where the model can be read.
    """

    watch: Watch | None = None

    def __init__(self, data: object = None, every: int = 50, *, predict: bool = False, **options: Any) -> None:
        super().__init__()
        self._data, self._every, self._predict, self._options = data, every, predict, options

    @property
    def result(self) -> WatchedTraining:
        """What was seen so far."""
        if self.watch is None:
            raise InvalidInput("a training to look at", got="none yet", where="LightningWatch", hint="trainer.fit(…)")
        return self.watch.result

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Choose the points, and look for the first time."""
        if not trainer.is_global_zero:
            return
        data = self._data if self._data is not None else _loader(trainer)

        def log(numbers: dict[str, float], step: int) -> None:
            # Not `pl_module.log`, which drops what is not on one of the trainer's own logging steps.
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=step)

        options: dict[str, Any] = {"log": log, "optimizer": _optimizer(trainer, self._predict)}
        options |= ({} if self._predict else {"predict_seconds": 0.0}) | self._options
        self.watch = Watch(pl_module, data, self._every, **options)
        self.watch.step(trainer.global_step)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Look, if it is time to."""
        if self.watch is not None:
            self.watch.step(trainer.global_step)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warn, if the bias of the start is still there."""
        if self.watch is not None and not trainer.sanity_checking and trainer.state.fn == "fit":
            self.watch.evaluating(trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The last look."""
        if self.watch is not None:
            self.watch.finish(trainer.global_step)


def _loader(trainer: Trainer) -> object:
    """The training's DataLoader, if it is one."""
    loaders: Any = trainer.train_dataloader
    if isinstance(loaders, (dict, list, tuple)):
        expected, hint = "data to look at, where a training has several loaders", "LightningWatch(loaders[0])"
        raise InvalidInput(expected, got=f"{len(loaders)} loaders", where="LightningWatch(data)", hint=hint)
    return loaders


def _optimizer(trainer: Trainer, predict: bool) -> Any:
    """The one optimizer; None where there are several, or gradients are changed on their way to a prediction."""
    from torch.optim import Optimizer

    optimizers: list[Any] = list(trainer.optimizers)
    changed = predict and (trainer.accumulate_grad_batches != 1 or trainer.gradient_clip_val)
    if len(optimizers) != 1 or changed or not isinstance(optimizers[0], Optimizer):
        return None
    return optimizers[0]
