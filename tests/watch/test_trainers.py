"""Real trainers: Lightning's and Transformers', with and without a watch."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import points, some_labels
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import firstguess as fg


@pytest.fixture(autouse=True)
def not_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers takes any process that has loaded marimo for a notebook, and then needs IPython."""
    monkeypatch.delitem(sys.modules, "marimo", raising=False)


pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*number of training batches .* smaller than the logging interval:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated.*"),
]

pl = pytest.importorskip("lightning.pytorch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


def separable(n: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    y = some_labels(n, 3)
    x = points(n, 12)
    x[torch.arange(n), y] += 3.0
    return x, y


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(0.2), nn.Linear(20, 3))
    with torch.no_grad():
        model[4].bias.zero_()[1] = 3.0
    return model


class Lit(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.3)


def loaders() -> tuple[Any, Any]:
    data = TensorDataset(*separable())
    return DataLoader(data, batch_size=20, shuffle=True), DataLoader(data, batch_size=60)


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "logger": False}
    options = {**quiet, "default_root_dir": folder, "max_epochs": 8, "enable_checkpointing": False, **options}
    return pl.Trainer(callbacks=list(callbacks), **options)


# -- Lightning ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::firstguess.EarlyEvaluation")
def test_lightning_trains_the_same_bit_for_bit(tmp_path: Path) -> None:
    found: list[Any] = []
    for callbacks in ((), (fg.watch.LightningWatch(every=3, cost=None),)):
        pl.seed_everything(3, verbose=False)
        module = Lit()
        trainer(tmp_path, *callbacks).fit(module, *loaders())
        found.append(({k: v.tolist() for k, v in module.state_dict().items()}, torch.get_rng_state().tolist()))
        for callback in callbacks:
            steps = callback.result.steps.tolist()
            assert steps[0] == 0
            assert steps[-1] == 48
            assert len(steps) > 20
    assert found[0] == found[1]


def test_lightning_numbers_go_to_its_loggers_and_early_validations_warn(tmp_path: Path) -> None:
    pl.seed_everything(3, verbose=False)
    logger = pl.loggers.CSVLogger(tmp_path, name="run", version=0)
    watch = fg.watch.LightningWatch(every=10, names=["cat", "dog", "owl"], log_all=True)
    with pytest.raises(fg.InvalidInput, match="a training to look at"):
        _ = watch.result
    with pytest.warns(fg.EarlyEvaluation, match=r"evaluated at step 1, .* favour dog"):
        trainer(tmp_path, watch, logger=logger, val_check_interval=1, log_every_n_steps=1000).fit(Lit(), *loaders())
    seen = watch.result
    assert seen.favourite == 1
    assert seen.early[0] == 1  # not 0, the sanity check before training
    assert 0 < seen.absorbed_at < 48
    with (tmp_path / "run" / "version_0" / "metrics.csv").open() as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file) if row["firstguess/largest"]}
    assert sorted(rows) == seen.steps.tolist()
    for step, largest, recall in zip(seen.steps.tolist(), seen.largest.draws[0], seen.recall[:, 1], strict=True):
        assert float(rows[step]["firstguess/largest"]) == largest
        assert float(rows[step]["firstguess/recall/dog"]) == recall
    assert f"{seen.points}" == "64"


@pytest.mark.filterwarnings("ignore::firstguess.EarlyEvaluation")
def test_lightning_warns_of_a_collapse_once(tmp_path: Path) -> None:
    pl.seed_everything(3, verbose=False)
    watch = fg.watch.LightningWatch(every=5)
    module = Lit()
    module.net = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=30.0)  # type: ignore[method-assign]
    with pytest.warns(RuntimeWarning, match="learning rate too high") as said:
        trainer(tmp_path, watch, limit_val_batches=0, num_sanity_val_steps=0).fit(module, *loaders())
    assert sum("learning rate too high" in str(one.message) for one in said) == 1
    assert watch.result.collapse is not None


def test_lightning_resumed_from_a_checkpoint_has_no_known_start(tmp_path: Path) -> None:
    first = trainer(tmp_path, max_epochs=2)
    module = Lit()
    first.fit(module, *loaders())
    first.save_checkpoint(tmp_path / "half.ckpt")
    watch = fg.watch.LightningWatch(every=3, cost=None)
    trainer(tmp_path, watch, max_epochs=4).fit(Lit(), *loaders(), ckpt_path=tmp_path / "half.ckpt")
    assert watch.result.steps[0] == 12
    assert not watch.result.start_known
    assert "watched from step 12 on, so the starting bias is not known" in watch.result.finding


@pytest.mark.filterwarnings("ignore::firstguess.EarlyEvaluation")
def test_lightning_counts_updates_and_takes_other_data(tmp_path: Path) -> None:
    watch = fg.watch.LightningWatch(separable(90), every=1, cost=None)
    trainer(tmp_path, watch, accumulate_grad_batches=3).fit(Lit(), *loaders())
    assert watch.result.steps.tolist() == list(range(17))  # 8 epochs of 6 batches, 3 for an update
    assert watch.result.points == 90


@pytest.mark.filterwarnings("ignore::firstguess.EarlyEvaluation")
def test_lightning_predicts_where_asked_and_readable(tmp_path: Path) -> None:
    class Plain(Lit):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.001)

    watch = fg.watch.LightningWatch(predict=True)
    trainer(tmp_path, watch, max_epochs=2).fit(Plain(), *loaders())
    assert watch.result.predicted is not None, watch.result.unpredicted
    assert watch.result.predicted.provenance["optimizer"] == "sgd"


# -- Transformers ------------------------------------------------------------------------------------------------------


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=3,
    )
    model = transformers.BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.bias[2] = 2.0
    return model


def texts(n: int = 60) -> list[dict[str, Any]]:
    """A class is a token that is there."""
    rows = torch.randint(10, 40, (n, 7), generator=torch.Generator().manual_seed(0))
    rows[:, 1] = torch.arange(n) % 3
    return [{"input_ids": row.tolist(), "attention_mask": [1] * 7, "labels": i % 3} for i, row in enumerate(rows)]


def hugging(folder: Path, **options: Any) -> Any:
    given = {"max_steps": 24, "per_device_train_batch_size": 10, "learning_rate": 3e-3, "eval_strategy": "steps"}
    given |= {"eval_steps": 6, "report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
    arguments = transformers.TrainingArguments(output_dir=str(folder), **{**given, **options})
    transformers.set_seed(4)
    made = transformers.Trainer(bert(), arguments, train_dataset=texts(), eval_dataset=texts(30))
    made.remove_callback(transformers.PrinterCallback)
    return made


@pytest.mark.filterwarnings("ignore::firstguess.EarlyEvaluation")
def test_transformers_trains_the_same_bit_for_bit(tmp_path: Path) -> None:
    found: list[Any] = []
    for watched in (False, True):
        run = hugging(tmp_path)
        watch = fg.watch.TransformersWatch(run, every=2, cost=None)
        if watched:
            run.add_callback(watch)
        run.train()
        found.append(({k: v.tolist() for k, v in run.model.state_dict().items()}, torch.get_rng_state().tolist()))
    assert watch.result.steps.tolist() == [*range(9), 10, 12, 13, 14, 16, 18, 20, 22, 24]
    assert found[0] == found[1]


def test_transformers_numbers_go_through_its_log_and_early_evaluations_warn(tmp_path: Path) -> None:
    logged: list[tuple[int, dict[str, float]]] = []

    class Reports(transformers.TrainerCallback):  # as what report_to names is one
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            logged.append((state.global_step, dict(logs)))

    run = hugging(tmp_path, eval_steps=2)
    run.add_callback(Reports())
    watch = fg.watch.TransformersWatch(run)
    run.add_callback(watch)
    with pytest.raises(fg.InvalidInput, match="a training to look at"):
        _ = watch.result
    with pytest.warns(fg.EarlyEvaluation, match=r"evaluated at step 2, .* favour class 2"):
        run.train()
    seen = watch.result
    assert seen.favourite == 2
    ours = {step: numbers for step, numbers in logged if "firstguess/largest" in numbers}
    assert sorted(ours) == seen.steps.tolist()
    for step, largest in zip(seen.steps.tolist(), seen.largest.draws[0], strict=True):
        assert ours[step]["firstguess/largest"] == largest
    history = [entry for entry in run.state.log_history if "firstguess/largest" in entry]
    assert [entry["step"] for entry in history] == seen.steps.tolist()
    assert seen.points == 60  # 64 are asked for, and there are this many
    early = seen.early
    run.evaluate()  # behind training: not the watch's affair
    assert watch.result.early == early


@pytest.mark.filterwarnings("ignore::firstguess.EarlyEvaluation")
def test_transformers_without_the_trainer_and_resumed(tmp_path: Path) -> None:
    first = hugging(tmp_path, save_strategy="steps", save_steps=12, max_steps=12)
    first.train()
    second = hugging(tmp_path)
    watch = fg.watch.TransformersWatch(every=4, cost=None)
    second.add_callback(watch)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert watch.result.steps.tolist()[0] == 12
    assert not watch.result.start_known
    history = [entry["step"] for entry in second.state.log_history if "firstguess/largest" in entry]
    assert history == watch.result.steps.tolist()


# -- Without them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "modules", "extra"),
    [
        ("LightningWatch", ["lightning", "pytorch_lightning"], "firstguess[lightning]"),
        ("TransformersWatch", ["transformers"], "firstguess[transformers]"),
    ],
)
def test_a_missing_trainer_is_one_line_that_names_the_extra(name: str, modules: list[str], extra: str) -> None:
    program = f"""
import sys
for module in {modules!r}: sys.modules[module] = None
import firstguess as fg
try: fg.watch.{name}
except fg.InvalidInput as error: print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert f"pip install '{extra}'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_the_room_loads_no_trainer() -> None:
    program = "import sys, json, firstguess.watch, firstguess as fg\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"torch", "lightning", "transformers", "altair"}
    program = "import sys, json, firstguess as fg\nfg.Watch\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"lightning", "transformers", "altair"}
