"""What `fg.train` does around the training: starts, divergence, files, Ctrl-C, bad input."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import firstguess as fg
from firstguess.ensemble import training_engine
from firstguess.ensemble.member_module import build
from firstguess.ensemble.training_loop import Observe, TrainingTask, follow, mean_loss
from firstguess.network.network import Network

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"
DEEP = "6 x [dense(weight_var=2) > relu] > dense(weight_var=2)"


def points(n: int = 40, classes: int = 2) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(1)
    y = np.arange(n) % classes
    return (rng.standard_normal((n, 6)) + 0.5 * y[:, None]).astype(np.float32), y


def trained(net: str = NET, **options: Any) -> fg.TrainedMembers:
    return fg.train(net, **({"data": points(), "inits": 4, "width": 10, "lr": 0.01, "batch": 8, "steps": 30} | options))


# -- Starts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["biased", "neutral"])
@pytest.mark.parametrize("classes", [2, 3])
def test_starts_are_drawn_looked_at_and_kept(start: str, classes: int) -> None:
    x, y = points(60, classes)
    net = DEEP if start == "biased" else NET
    r = fg.train(net, data=(x, y), inits=5, start=start, width=10, lr=0.01, steps=3, optimizer="gd")
    model = Network.parse(net, classes=classes)
    largest: list[float] = []
    for member in range(r.drawn):
        with torch.no_grad():
            guesses = build(model, x, width=10, member=member)(torch.tensor(x)).argmax(1).numpy()
        largest.append(np.bincount(guesses).max() / len(x))
    fits = [
        member
        for member, share in enumerate(largest)
        if (share >= 0.9 if start == "biased" else share <= 1.1 / classes)
    ]
    assert r.members == tuple(fits)
    assert r.members[-1] == r.drawn - 1
    np.testing.assert_allclose(r.largest.draws[:, 0], [largest[member] for member in fits])
    assert f"5 {start} ones, of {r.drawn} drawn" in str(r)


def test_all_starts_by_default() -> None:
    r = trained()
    assert (r.members, r.drawn, r.start) == ((0, 1, 2, 3), 4, "any")
    assert "drawn" not in str(r)


def test_no_start_as_asked_is_one_clear_error() -> None:
    with pytest.raises(
        fg.InvalidInput, match=r"starts that are biased, but got 0 of \d+ drawn \(.* 0\.\d+ to 0\.\d+\)"
    ):
        trained("dense > relu > batchnorm > dense", start="biased", inits=1, batch=None)


# -- Divergence -------------------------------------------------------------------------------------------------------


def test_divergence_is_a_result_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = trained(inits=3, threads=1)
    made = training_engine.DescriptionTrainer._member

    def spoilt(self: Any, member: int) -> Any:
        model = made(self, member)
        if member == 1:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(1e30)
        return model

    monkeypatch.setattr(training_engine.DescriptionTrainer, "_member", spoilt)
    r = trained(inits=3, threads=1)
    assert r.diverged == ((1, 0),)
    np.testing.assert_array_equal(r.loss.draws[[0, 2]], fine.loss.draws[[0, 2]])
    assert np.isnan(r.loss.draws[1]).all()
    assert np.isfinite(r.loss.mean).all()
    assert "1 of 3 networks, first member 1, seen at step 0" in str(r)
    assert r.guesses(8).inits == 2


def test_all_diverge_and_it_ends(tmp_path: Path) -> None:
    r = trained(
        "dense > square > dense > square > dense", lr=1e25, optimizer="gd", batch=None, steps=10_000, store=tmp_path
    )
    assert [member for member, _ in r.diverged] == [0, 1, 2, 3]
    assert all(step > 0 for _, step in r.diverged)
    assert np.isfinite(r.loss.draws[:, 0]).all()
    assert r.absorption.within <= 1
    again = trained(
        "dense > square > dense > square > dense", lr=1e25, optimizer="gd", batch=None, steps=10_000, store=tmp_path
    )
    assert again.diverged == r.diverged


# -- Files ------------------------------------------------------------------------------------------------------------


def same(one: fg.TrainedMembers, other: fg.TrainedMembers) -> None:
    """But for rounding, which depends on what a member is trained next to."""
    assert one.members == other.members
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    close(one.shares, other.shares)
    close(one.loss.draws, other.loss.draws)
    close(one.gradients.draws, other.gradients.draws)
    close(one.accuracy["others"].draws, other.accuracy["others"].draws)
    assert (one.test is None) == (other.test is None)
    if one.test is not None and other.test is not None:
        close(one.test.loss.draws, other.test.loss.draws)


_KILLED = """
import sys
from firstguess.ensemble import training_engine
from tests.ensemble.test_training_loop import points, trained

training_engine._MOST = 2
trained(inits=12, steps=1000, store=sys.argv[1], test=points(20), threads=1)
"""


def _killed_at_its_first_file(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(folder)], cwd=Path(__file__).parents[2], env=dict(os.environ)
    )
    until = time.monotonic() + 120
    while not list(folder.glob("*.npz")) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_goes_on_after_kill_9(tmp_path: Path) -> None:
    """A process is killed when some of its networks are done: the rest is trained, with the same numbers."""
    for _ in range(5):  # on a busy machine it may be done before we see its first file
        _killed_at_its_first_file(tmp_path)
        if len(found := list(tmp_path.glob("*.npz"))) < 12:
            break
        for path in found:
            path.unlink()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    assert 0 < len(kept) < 12
    options: dict[str, Any] = {"inits": 12, "steps": 1000, "test": points(20)}
    resumed = trained(store=tmp_path, **options)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept  # these were not trained again
    assert len(list(tmp_path.glob("*.npz"))) == 12
    same(resumed, trained(**options))


@pytest.mark.parametrize("spoil", ["cut", "garbage", "flipped", "shapes", "pickle"])
def test_a_file_that_cannot_be_read_is_done_again(tmp_path: Path, spoil: str) -> None:
    r = trained(store=tmp_path)
    path = sorted(tmp_path.glob("*.npz"))[1]
    content = path.read_bytes()
    if spoil == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif spoil == "garbage":
        path.write_bytes(b"no numbers")
    elif spoil == "flipped":
        middle = content.index(b"\x93NUMPY") + 200
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    elif spoil == "shapes":
        np.savez(path, shares=np.zeros(3))
    else:
        np.savez(path, shares=np.array([{}], dtype=object))
    same(trained(store=tmp_path), r)
    with np.load(path) as kept, np.load(io.BytesIO(content)) as before:
        assert {name: kept[name].shape for name in kept} == {name: before[name].shape for name in before}


def test_other_settings_are_other_files(tmp_path: Path) -> None:
    x, y = points()
    variants: list[dict[str, Any]] = [
        {},
        {"lr": 0.02},
        {"lr": lambda step: 0.01 if step < 20 else 0.02},
        {"seed": 1},
        {"data": (x + 1, y)},
        {"data": (x, 1 - y)},
        {"test": (x, y)},
        {"width": 11},
        {"steps": 31},
        {"batch": 9},
        {"optimizer": "sgd"},
        {"loss": "squared"},
        {"weight_decay": 0.1},
        {"net": "dense(weight_var=2) > tanh > dense(weight_var=2)"},
    ]
    for number, options in enumerate(variants, 1):
        trained(inits=1, store=tmp_path, **options)
        assert len(list(tmp_path.glob("*.npz"))) == number, options
    trained(inits=2, store=tmp_path)  # more of the same
    assert len(list(tmp_path.glob("*.npz"))) == len(variants) + 1
    same(trained(inits=2, store=tmp_path), trained(inits=2))


def test_an_activation_of_ones_own_is_known_by_its_values(tmp_path: Path) -> None:
    from firstguess.network.builders import mlp

    for number, factor in enumerate((0.5, 0.7), 1):
        phi = fg.activation(
            lambda x, a=factor: np.sin(a * x), name="mine", derivative=lambda x, a=factor: a * np.cos(a * x)
        )
        r = fg.train(mlp(1, phi), data=points(), inits=1, width=10, lr=0.01, steps=3, store=tmp_path)
        assert len(list(tmp_path.glob("*.npz"))) == number
        assert not r.notes


def test_a_function_of_ones_own_trains_by_its_numerical_slope_and_a_jump_is_refused() -> None:
    from firstguess.network.builders import mlp

    runs = [
        fg.train(mlp(1, phi), data=points(), inits=1, width=10, lr=0.05, steps=5)
        for phi in (fg.activation(np.sin), "sin")
    ]
    np.testing.assert_allclose(runs[0].loss.draws, runs[1].loss.draws, rtol=1e-5)
    step = fg.activation(lambda x: np.where(x > 0.0, 1.0, 0.0), name="step")
    with pytest.raises(fg.NotCovered, match=r"derivative is known.*do not reach 1 of 2"):
        fg.train(mlp(1, step), data=points(), inits=1, width=10, steps=3)


# -- Ctrl-C and progress ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupted_keeps_the_curves_so_far(tmp_path: Path, threads: int) -> None:
    calls = 0

    def press(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGINT)

    options: dict[str, Any] = {"inits": 6, "steps": 1_000_000, "threads": threads}
    r = trained(progress=press, store=tmp_path, **options)
    assert r.interrupted
    assert "interrupted" in str(r)
    assert r.to_dict()["interrupted"] is True
    assert not list(tmp_path.glob("*.npz"))
    seen = np.isfinite(r.loss.draws)
    assert seen[:, 0].all()
    assert not seen[:, -1].any()
    short = trained(**(options | {"steps": 7}))
    many = int(seen.sum(1).min())
    assert many > 1
    np.testing.assert_array_equal(r.loss.draws[:, : min(many, 8)], short.loss.draws[: len(r.members), : min(many, 8)])


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_ends_at_the_total_and_grows(threads: int) -> None:
    seen: list[tuple[int, int]] = []
    trained(steps=2000, threads=threads, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8000, 8000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_errors_in_threads_and_in_progress_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trained(steps=100_000, threads=2, progress=broken)

    def fails(*args: Any) -> None:
        raise ArithmeticError

    monkeypatch.setattr(training_engine.DescriptionTrainer, "_loss", fails)
    with pytest.raises(ArithmeticError):
        trained(threads=2)


def test_torchs_threads_come_back() -> None:
    before = torch.get_num_threads()
    trained(threads=1)
    trained(threads=2, start="neutral", inits=1)
    assert torch.get_num_threads() == before
    assert torch.is_grad_enabled()


# -- The driver alone -------------------------------------------------------------------------------------------------


@dataclass
class _Scripted:
    """Logits that are known: member i guesses class 1 on i of the points at the first look, then all are right."""

    labels: NDArray[np.int64]
    classes: int = 2
    group: int = 2
    threads: int = 1
    notes: tuple[str, ...] = ("scripted",)

    def _logits(self, member: int, index: int) -> NDArray[np.float32]:
        if member == 2 and index == 2:
            return np.full((len(self.labels), 2), math.nan, np.float32)
        ones = np.arange(len(self.labels)) < member if index == 0 else self.labels == 1
        return np.stack([~ones, ones], axis=1).astype(np.float32)

    def first(self, members: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        return (self._logits(member, 0) for member in members)

    def train(
        self, members: Sequence[int], looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]
    ) -> None:
        for index, _ in enumerate(looks):
            for member in members:
                observe(member, index, self._logits(member, index), None, float(member))


def test_curves_of_known_logits() -> None:
    labels = np.array([0, 0, 0, 1, 1])
    task = TrainingTask(labels, None, 2, np.array([0, 1, 2]), mean_loss("cross-entropy"), 0.7)
    r = follow(_Scripted(labels), task, what="scripted", inits=4, provenance={"seed": 3})
    np.testing.assert_allclose(r.largest.draws, [[1, 0.6, 0.6], [0.8, 0.6, 0.6], [0.6, 0.6, math.nan], [0.6, 0.6, 0.6]])
    assert r.favourites.tolist() == [0, 0, 0, 1]
    np.testing.assert_allclose(r.accuracy["favoured"].draws[:, 0], [1, 2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(r.accuracy["others"].draws[:, 0], [0, 0, 0, 0])
    np.testing.assert_allclose(r.accuracy.draws[:, 1], 1)
    np.testing.assert_allclose(r.gradients.draws[:, 1], [0, 1, 2, 3])
    assert r.diverged == ((2, 2),)
    np.testing.assert_allclose(r.absorption.draws, [0.75, 0.5, 0, 0])
    assert r.guesses(0).fractions.tolist() == [[1, 0], [0.8, 0.2], [0.6, 0.4], [0.4, 0.6]]
    assert r.guesses(0, relabelled=True).fractions.tolist() == [[1, 0], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]]
    right, wrong = math.log1p(math.exp(-1)), math.log1p(math.exp(1))
    np.testing.assert_allclose(r.loss.draws[:, 0], [(3 * right + 2 * wrong) / 5, (2 * right + 3 * wrong) / 5,
                                                    (1 * right + 4 * wrong) / 5, wrong])  # fmt: skip
    assert r.notes == ("scripted",)
    json.dumps(r.to_dict(), allow_nan=False)
    assert "note: scripted" in r._repr_html_()
    with pytest.raises(fg.InvalidInput, match=r"step that was looked at, but got 5.*guesses\(2\)"):
        r.guesses(5)


# -- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": points()[0]}, "labelled points, but got points without labels"),
        ({"test": points()[0]}, "labelled points, but got points without labels, at test"),
        ({"data": (points()[0], np.zeros(40, int))}, "two classes at least, but got one class only"),
        ({"data": (points()[0], points()[1][:-1])}, "label"),
        ({"test": (np.ones((4, 5)), [0, 1, 0, 1])}, "held-out points of shape"),
        ({"lr": 0}, "a learning rate above 0, but got 0"),
        ({"lr": -1e-3}, "a learning rate above 0"),
        ({"lr": math.nan}, "a learning rate above 0"),
        ({"lr": "fast"}, "a learning rate above 0"),
        ({"lr": lambda step: 0.1 - 0.01 * step}, "at least 0, but got -0.01 at step 11"),
        ({"batch": 0}, "batch size, at least 1, but got 0"),
        ({"batch": 2.5}, "batch size"),
        ({"optimizer": "lion"}, "optimizer 'gd', 'sgd' or 'adam', but got lion"),
        ({"optimizer": torch.optim.Adam}, "optimizer 'gd', 'sgd' or 'adam'"),
        ({"optimizer": "gd"}, "no batch: 'gd' takes all points"),
        ({"optimizer": "sgd", "batch": None}, "size of mini-batches"),
        ({"loss": "hinge"}, "loss 'cross-entropy' or 'squared'"),
        ({"weight_decay": -1}, "weight decay of at least 0"),
        ({"steps": None}, "steps or epochs, one of them, but got neither"),
        ({"epochs": 3}, "steps or epochs, one of them, but got both"),
        ({"steps": 0}, "number of steps"),
        ({"steps": [0, 1.5]}, "a list of some"),
        ({"steps": None, "epochs": 0}, "number of epochs"),
        ({"inits": 0}, "number of initializations"),
        ({"start": "odd"}, "start 'any', 'even', 'neutral' or 'biased'"),
        ({"seed": -1}, "seed"),
        ({"width": 0}, "width"),
        ({"threads": 0}, "number of threads"),
        ({"level": 1.5}, "a share between"),
        ({"classes": 2, "data": points(40, 3)}, "labels 0…1"),
        ({"net": "dense > batchnorm > dense", "batch": 13}, r"at least 2 points .*40 points in batches of 13"),
        ({"net": "dense > batchnorm(batch=4) > dense", "test": points()}, "norms over batches of their own size"),
        ({"scheduler": object}, "function of the step"),
        ({"rate": 1}, "an option of train"),
        ({"store": "/dev/null/runs"}, "a folder to keep results in"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(fg.FirstguessError, match=said) as caught:
        trained(**options)
    assert "\n" not in str(caught.value)


def test_too_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstguess.ensemble.training_engine._free_memory", lambda: 1e3)
    with pytest.raises(fg.InvalidInput, match="memory for one network in training"):
        trained()


def test_little_memory_means_fewer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    r = trained(inits=2)
    monkeypatch.setattr("firstguess.ensemble.training_engine._free_memory", lambda: 5e6)
    same(trained(inits=2), r)


def test_epochs_are_steps() -> None:
    r = trained(steps=None, epochs=3, batch=16)
    assert r.steps[-1] == 9
    assert trained(steps=None, epochs=3, batch=None).steps[-1] == 3
    assert trained(steps=[5, 2]).steps.tolist() == [0, 2, 5]
