"""Callbacks of Lightning and Transformers name a collapse as the doctor does, and warn once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import firstguess as fg
from firstguess.watch import loop

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(autouse=True)
def _time_to_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine five seconds are not enough for the rate."""
    monkeypatch.setattr(loop, "_NAMING", 600.0)


def check(watch: Any, heard: list[warnings.WarningMessage], calm: float) -> None:
    collapse = watch.result.collapse
    assert collapse is not None
    assert collapse.name == "learning rate too high"
    assert watch.result.finding.startswith("learning rate too high")
    assert f"lr={calm:g}" in collapse.why
    assert sum("learning rate too high" in str(one.message) for one in heard) == 1


def test_lightning(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")

    class Lit(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=20.0)

    torch.manual_seed(0)
    digits = fg.data.digits()
    x = torch.tensor(np.asarray(digits.x), dtype=torch.float32).reshape(-1, 1, 8, 8)
    loader = DataLoader(TensorDataset(x, torch.tensor(np.asarray(digits.y))), batch_size=64, shuffle=True)
    watch = fg.watch.LightningWatch()
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        pl.Trainer(
            max_steps=100, callbacks=[watch], default_root_dir=tmp_path, enable_checkpointing=False, **quiet
        ).fit(Lit(), loader)
    check(watch, heard, 0.2)


def test_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=4,
    )
    ids = torch.randint(1, 60, (400, 12))

    class Firsts(Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return len(ids)

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            return {"input_ids": ids[index], "labels": ids[index, 0] % 4}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=100,
        learning_rate=0.5,
        per_device_train_batch_size=32,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = transformers.Trainer(
        model=transformers.BertForSequenceClassification(config), args=arguments, train_dataset=Firsts()
    )
    watch = fg.watch.TransformersWatch(trainer)
    trainer.add_callback(watch)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        trainer.train()
    check(watch, heard, 0.005)
