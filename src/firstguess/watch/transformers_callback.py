"""`TransformersWatch`: a watch as a callback of Hugging Face's Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstguess.base.checks import optional
from firstguess.base.errors import InvalidInput
from firstguess.watch.loop import Watch
from firstguess.watch.seen import WatchedTraining

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
    from transformers import TrainingArguments as Arguments
else:
    TrainerCallback = optional("transformers", "transformers", "firstguess.watch.TransformersWatch").TrainerCallback


class TransformersWatch(TrainerCallback):
    """A callback: `trainer.add_callback(TransformersWatch(trainer))`. Numbers go through `trainer.log`, so to all that
    `report_to` names; without the trainer (`Trainer(callbacks=[TransformersWatch()])`), to `state.log_history` only.

    Warns (`fg.EarlyEvaluation`) when an evaluation during training comes before the bias of the start is absorbed. With
    several processes the first one looks, and sharded models are refused.

    Args:
        trainer: Through which numbers are logged.
        data: The points to look at are taken from here; by default from the training's DataLoader.
        every: As for `fg.Watch`, and likewise all other options. A step is an update (`state.global_step`).
    """

    def __init__(self, trainer: Trainer | None = None, data: object = None, every: int = 50, **options: Any) -> None:
        self._trainer, self._data, self._every, self._options = trainer, data, every, options
        self.watch: Watch | None = None
        self._training = False

    @property
    def result(self) -> WatchedTraining:
        """What was seen so far."""
        if self.watch is None:
            hint = "trainer.train()"
            raise InvalidInput("a training to look at", got="none yet", where="TransformersWatch", hint=hint)
        return self.watch.result

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Choose the points, and look for the first time."""
        if not state.is_world_process_zero:
            return
        data = self._data if self._data is not None else kwargs.get("train_dataloader")

        def log(numbers: dict[str, float], step: int) -> None:
            if self._trainer is not None:
                self._trainer.log(numbers)
            else:
                state.log_history.append({**numbers, "step": step})

        # Accelerate wraps the optimizer: what is inside has the rate of a collapse. Trainings are not predicted here.
        inner = getattr(kwargs.get("optimizer"), "optimizer", kwargs.get("optimizer"))
        options: dict[str, Any] = {"log": log, "optimizer": inner, "predict_seconds": 0.0} | self._options
        self.watch = Watch(kwargs["model"], data, self._every, **options)
        self._training = True
        self.watch.step(state.global_step)

    def on_step_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Look, if it is time to."""
        if self.watch is not None:
            self.watch.step(state.global_step)

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Warn, if the bias of the start is still there."""
        if self.watch is not None and self._training:
            self.watch.evaluating(state.global_step)

    def on_train_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The last look."""
        if self.watch is not None:
            self._training = False
            self.watch.finish(state.global_step)
