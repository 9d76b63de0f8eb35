"""Repair and priors: γ after moving a head's bias by theory.md (37), on models of all kinds; (36) by simulation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import collect
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.match_prior import expected_shares
from firstguess.modules.members.sources import source_of
from firstguess.modules.repair import logits_of


def mlp(depth: int = 6, classes: int = 5, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(20 if i == 0 else 64, 64, bias=bias), nn.ReLU()]
        nn.init.kaiming_normal_(layers[-2].weight)  # type: ignore[arg-type]
    return nn.Sequential(*layers, nn.Linear(64, classes, bias=bias))


def plain_gamma(rows: torch.Tensor) -> float:
    """By its definition: over classes, squared means of the differences from the common part, by their variance."""
    x = (rows - rows.mean(1, keepdim=True)).double()
    n = len(x)
    spread = float(x.var(0).mean())
    return (float((x.mean(0) ** 2).mean()) - spread / n) / spread


class NormHead(nn.Module):
    """Ends in a norm: the bias that can be moved is the norm's."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(3)
        self.norm = nn.LayerNorm(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.body(x))


class ConvHead(nn.Module):
    """One map a class, averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).mean((2, 3))


def batchnorm() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))


MODELS = {
    "plain": (mlp, (20,), "12.bias"),
    "without biases": (lambda: mlp(bias=False), (20,), "12.bias"),
    "ends in a norm": (NormHead, (20,), "norm.bias"),
    "ends in a convolution": (ConvHead, (3, 9, 9), "body.4.bias"),
    "with BatchNorm": (batchnorm, (20,), "3.bias"),
}


@pytest.mark.parametrize("name", MODELS)
def test_gamma_is_met_and_nothing_else_changes(name: str) -> None:
    make, shape, key = MODELS[name]
    torch.manual_seed(1)
    model, x = make(), torch.rand(400, *shape) + 0.5
    before = {k: v.clone() for k, v in model.state_dict().items()}
    was = plain_gamma(logits_of(model, fg.data.collect(x, 400)).rows)
    fixed = fg.repair(model, x, gamma=was / 4, points=400)
    assert fixed.gamma[0] == pytest.approx(was, rel=1e-4)
    rows = logits_of(fixed.model, fg.data.collect(x, 400)).rows
    assert plain_gamma(rows) == pytest.approx(was / 4, rel=1e-3)
    assert fixed.gamma[1] == pytest.approx(was / 4, rel=1e-3)
    assert fixed.changed + fixed.added == (key,)
    assert bool(fixed.added) == (name == "without biases")
    after = fixed.model.state_dict()
    assert {k for k in after if k not in before or not torch.equal(before[k], after[k])} == {key}
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())  # the user's model is as it was
    assert "training speed" in str(fixed)


def test_gradients_of_all_but_the_bias_follow_the_same_logits() -> None:
    """Differences of logits between two points do not change, so neither does what tells points apart."""
    torch.manual_seed(0)
    model, x = mlp(), torch.randn(300, 20) + 1
    fixed = fg.repair(model, x, gamma=0.0)
    a, b = model(x).detach(), fixed.model(x).detach()
    assert torch.allclose(a - a[:1], b - b[:1], atol=1e-5)
    assert fixed.largest[1] < fixed.largest[0]
    assert fixed.gamma[1] == pytest.approx(0.0, abs=1e-3)


def test_in_place_all_layers_and_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = mlp(8), torch.randn(300, 20) + 1
    fixed = fg.repair(model, x, gamma=0.2, how="layers", in_place=True)
    assert fixed.model is model
    assert fixed.gamma[1] <= 0.2 < fixed.gamma[0]
    assert len(fixed.changed) == 9
    assert "measure_gradients" in str(fixed)
    pytest.importorskip("safetensors")
    from safetensors.torch import load_file

    stored = load_file(fixed.save(tmp_path / "repaired.safetensors"))
    assert all(torch.equal(stored[k], v) for k, v in model.state_dict().items())


def test_what_is_refused_and_why() -> None:
    torch.manual_seed(0)
    x = torch.randn(100, 20)
    with pytest.raises(fg.NotCovered, match="end the model in"):
        fg.repair(nn.Sequential(mlp(), nn.Softmax(1)), x, gamma=0.0)
    with pytest.raises(fg.InvalidInput, match="at least 0"):
        fg.repair(mlp(), x, gamma=-1.0)
    with pytest.raises(fg.InvalidInput, match=r"nn\.Module"):
        fg.repair("mlp", x)  # type: ignore[arg-type]
    even = fg.repair(mlp(1), x, gamma=100.0)
    assert "nothing was changed" in str(even)


def test_a_trained_body_with_a_fresh_head_is_repaired_without_force() -> None:
    x, model = torch.randn(300, 20), mlp(1)
    with torch.no_grad():
        model[0].weight.add_(torch.randn(64, 1) @ torch.randn(1, 20))  # type: ignore[operator, arg-type]
    fixed = fg.repair(model, x, gamma=0.0)
    assert fixed.changed == (f"{len(model) - 1}.bias",)
    assert fixed.largest[1] < fixed.largest[0] or fixed.gamma[1] < fixed.gamma[0]
    with pytest.raises(fg.InvalidInput, match=r"0\.weight looks trained.*force=True"):
        fg.repair(model, x, gamma=0.0, how="layers")  # which would move biases of the trained layers
    head = model[len(model) - 1]
    with torch.no_grad():
        head.weight.add_(3.0 * torch.randn(len(head.weight), 1) @ torch.randn(1, 64))  # type: ignore[operator, arg-type]
    with pytest.raises(fg.InvalidInput, match=r"looks trained.*force=True"):
        fg.repair(model, x, gamma=0.0)
    fg.repair(model, x, gamma=0.0, force=True)


def test_a_fresh_head_on_a_trained_body_is_matched_to_the_prior_without_force() -> None:
    x, model = torch.randn(300, 20), mlp(1, classes=2)
    y = (torch.arange(300) < 30).long()
    with torch.no_grad():
        model[0].weight.add_(torch.randn(64, 1) @ torch.randn(1, 20))  # type: ignore[operator, arg-type]
    m = fg.match_prior(model, (x, y))
    assert cross_entropy(m.model, x, y) == pytest.approx(m.entropy, abs=0.01)
    assert torch.equal(m.model[0].weight, model[0].weight)
    with torch.no_grad():
        model[-1].weight.add_(3.0 * torch.randn(2, 1) @ torch.randn(1, 64))  # type: ignore[operator, arg-type]
    with pytest.raises(fg.InvalidInput, match=r"looks trained.*force=True"):
        fg.match_prior(model, (x, y))


def test_a_head_of_zeros_is_not_called_even() -> None:
    model = mlp()
    nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]
    with pytest.raises(fg.InvalidInput, match="head of zeros"):
        fg.repair(model, torch.randn(100, 20))


def test_a_tied_head_is_refused() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50, n_positions=16)
    torch.manual_seed(0)
    model, ids = transformers.GPT2LMHeadModel(config), torch.randint(0, 50, (20, 8))
    with pytest.raises(fg.NotCovered, match=r"tied to transformer\.wte.*cannot centre.*untie"):
        fg.repair(model, ids, gamma=0.0)
    even = fg.repair(model, ids, gamma=10.0)
    assert (even.changed, even.added) == ((), ())
    assert "Nor could centring help: lm_head tied to transformer.wte" in str(even)


def test_a_classifier_of_sequences_is_repaired() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                                     vocab_size=50, num_labels=3)  # fmt: skip
    fixed = fg.repair(transformers.BertForSequenceClassification(config), torch.randint(0, 50, (60, 8)), gamma=0.5)
    assert fixed.changed == ("classifier.bias",)
    assert fixed.gamma[0] > 5 * fixed.gamma[1]
    assert fixed.gamma[1] == pytest.approx(0.5, rel=1e-3)


def _hugging_face(name: str) -> tuple[nn.Module, torch.Tensor, str]:
    """A model from its configuration, data for it, and the key of what is moved."""
    t = pytest.importorskip("transformers")
    ids = torch.randint(1, 50, (80, 8))
    common = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    match name:
        case "vit":
            config = t.ViTConfig(**common, image_size=16, patch_size=4, num_labels=5)
            return t.ViTForImageClassification(config), torch.rand(80, 3, 16, 16), "classifier.bias"
        case "resnet":
            config = t.ResNetConfig(
                embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
            )
            return t.ResNetForImageClassification(config), torch.rand(80, 3, 32, 32), "classifier.1.bias"
        case _:
            ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
            config = t.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, n_positions=16, num_labels=3, **ends)
            return t.GPT2ForSequenceClassification(config), ids, "score.bias"


@pytest.mark.parametrize("name", ["vit", "resnet", "gpt2"])
def test_models_of_hugging_face(name: str) -> None:
    """Keys are those of the model; a head without a bias gets one, which is listed. Logits by another way."""
    torch.manual_seed(0)
    model, x, key = _hugging_face(name)
    keys = set(model.state_dict())
    fixed = fg.repair(model, x, gamma=0.2)
    assert fixed.gamma[0] > 0.3
    assert (fixed.changed, fixed.added) == (((key,), ()) if name != "gpt2" else ((), (key,)))
    assert set(fixed.model.state_dict()) == keys | set(fixed.added)
    with torch.no_grad():
        before, after = (m.train(name == "resnet")(x).logits for m in (model, fixed.model))
    moved = after - before
    assert torch.allclose(moved, moved[:1].expand_as(moved), atol=1e-5)  # one constant a class
    if name != "resnet":
        assert plain_gamma(after) == pytest.approx(0.2, rel=1e-3)


def test_a_batchnorm_at_the_end_has_its_bias_moved() -> None:
    """In train mode such a head is centred by itself; by its running statistics it is not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5), nn.BatchNorm1d(5))
    x = torch.randn(300, 20) + 1
    assert "nothing was changed" in str(fg.repair(model, x))
    fixed = fg.repair(model, x, mode="eval", points=300)
    assert fixed.changed == ("3.bias",)
    assert plain_gamma(fixed.model.eval()(x).detach()) == pytest.approx(0.2, rel=1e-3)


def test_no_bias_anywhere_to_move() -> None:
    class Scored(nn.Module):
        """Logits are products of what a layer gives with itself: no layer's bias is theirs."""

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(20, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).square()

    with pytest.raises(fg.NotCovered, match=r"one bias per class.*nn\.Linear\(features, classes\)"):
        fg.repair(Scored(), torch.randn(100, 20), gamma=0.0)
    with pytest.raises(fg.InvalidInput, match=r"layers with biases.*how=\"head\""):
        fg.repair(mlp(3, bias=False), torch.randn(100, 20) + 1, gamma=0.0, how="layers")


# -- Priors


@pytest.mark.parametrize(("p", "scale"), [(0.1, 1.21234), (1 / 21, 1.26967), (0.01, 1.39671)])
def test_golden_scales_of_guesses(p: float, scale: float) -> None:
    shares = expected_shares(np.log([p, 1 - p]), scale)
    assert shares[0] == pytest.approx(p, rel=1e-4)


def test_expected_shares_against_draws() -> None:
    """10⁶ draws of five logits; 5 standard errors (6e-7)."""
    biases, scale, n = np.log([0.5, 0.2, 0.15, 0.1, 0.05]), 0.8, 1_000_000
    z = biases + scale * np.random.default_rng(0).standard_normal((n, 5))
    seen = np.bincount(z.argmax(1), minlength=5) / n
    assert np.all(np.abs(seen - expected_shares(biases, scale)) < 5 * np.sqrt(seen * (1 - seen) / n))


def rare_class(n: int, rare: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of two classes that lie apart, sorted by class."""
    y = (torch.arange(n) < rare * n).long()
    return torch.randn(n, 20) + 0.5 * y[:, None], y


def cross_entropy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        out = model(x)
    if out.shape[1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(out[:, 0].double(), y.double()).item()
    return nn.functional.cross_entropy(out.double(), y).item()


@pytest.mark.parametrize("points", [4000, 512])
def test_the_first_loss_is_the_entropy_of_all_labels(points: int) -> None:
    """40 models, 95:5. On all points exactly; on 512 drawn ones the limit is kept clear by 3 standard errors: more than
    4 misses of 40 have a chance below 1e-6."""
    torch.manual_seed(0)
    x, y = rare_class(4000, 0.05)
    entropy = -0.95 * math.log(0.95) - 0.05 * math.log(0.05)
    misses = 0
    for depth in (1, 2, 4, 8) * 10:
        m = fg.match_prior(mlp(depth, classes=2), (x, y), points=points)
        assert m.prior.tolist() == [0.95, 0.05]
        assert m.entropy == pytest.approx(entropy)
        assert 0.0 < m.scale <= 1.0
        loss = cross_entropy(m.model, x, y)
        misses += abs(loss - entropy) > 0.01
        if points == len(x):
            assert m.loss[1] == pytest.approx(loss, abs=1e-5)
    assert misses <= (4 if points < len(x) else 0)


def test_a_head_that_is_small_already_keeps_its_weights_and_says_loss_and_entropy() -> None:
    torch.manual_seed(1)
    x, y = rare_class(1000, 0.05)
    model = mlp(1, classes=2)
    nn.init.normal_(model[-1].weight, std=0.01)
    m = fg.match_prior(model, (x, y))
    assert m.scale == 1.0
    assert m.changed == ("2.bias",)
    assert torch.equal(m.model[-1].weight, model[-1].weight)
    said = " ".join(str(m).split())
    assert f"→ {m.loss[1]:.3g} (the entropy of the prior is {m.entropy:.3g})" in said
    assert "all 1 000 labels" in said
    assert "class weights" in said


def test_all_labels_are_counted_in_a_loader_that_is_sorted_and_in_a_generator() -> None:
    torch.manual_seed(2)
    x, y = rare_class(2000, 0.3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=100)
    once = ((x[i : i + 100], y[i : i + 100]) for i in range(0, 2000, 100))
    for data in (loader, once):
        assert fg.match_prior(mlp(1, classes=2), data).prior.tolist() == [0.7, 0.3]


def test_a_head_with_one_logit_starts_at_the_log_odds() -> None:
    torch.manual_seed(3)
    x, y = rare_class(1000, 0.05)
    m = fg.match_prior(mlp(2, classes=1), (x, y.float()), points=1000)
    assert m.model[-1].bias.item() == pytest.approx(math.log(0.05 / 0.95))
    assert abs(cross_entropy(m.model, x, y) - m.entropy) <= 0.01
    assert m.loss[1] == pytest.approx(cross_entropy(m.model, x, y), abs=1e-5)
    guessed = fg.match_prior(mlp(2, classes=1), x, prior=[0.9, 0.1], mode="guesses")
    assert guessed.shares.round(6).tolist() == [0.9, 0.1]


@pytest.mark.parametrize(("present", "classes", "n"), [(2, 3, 1000), (3, 20, 30), (1, 1, 40), (5, 10, 300)])
def test_classes_without_examples_stay_finite_and_the_loss_said_is_the_cross_entropy(
    present: int, classes: int, n: int
) -> None:
    torch.manual_seed(4)
    x, y = torch.randn(n, 20), torch.arange(n) % present
    shares = np.bincount(y, minlength=max(classes, 2)) / n
    entropy = -sum(p * math.log(p) for p in shares if p > 0)
    for data, prior in (((x, y), "labels"), (x, shares)):
        m = fg.match_prior(mlp(1, classes=classes), data, prior=prior, points=n)
        assert torch.isfinite(m.model[-1].bias).all()
        assert 0 < m.prior.min() <= 0.005
        assert f"No examples of class {present}" in str(m)
        assert m.entropy == pytest.approx(entropy)
        assert abs(m.loss[1] - entropy) <= 0.01
        if isinstance(prior, str):
            assert m.loss[1] == pytest.approx(cross_entropy(m.model, x, y), abs=1e-5)


def test_a_rare_class_keeps_the_share_that_is_given() -> None:
    m = fg.match_prior(mlp(1, classes=2), torch.randn(100, 20), prior=[0.9999, 0.0001])
    assert m.prior.tolist() == [0.9999, 0.0001]
    bias = m.model[-1].bias
    assert (bias[1] - bias[0]).item() == pytest.approx(math.log(0.0001 / 0.9999))


def test_a_zero_head_is_matched() -> None:
    x, y = rare_class(500, 0.1)
    model = mlp(1, classes=2)
    nn.init.zeros_(model[-1].weight)
    m = fg.match_prior(model, (x, y))
    assert m.loss[1] == pytest.approx(m.entropy)
    assert m.shares.tolist() == [1.0, 0.0]


def test_guesses_follow_the_prior_over_initializations() -> None:
    """Shares of class 0, averaged over 60 networks: within 5 standard errors of 0.9."""
    x = torch.randn(400, 20)
    shares: list[float] = []
    for seed in range(60):
        torch.manual_seed(seed)
        m = fg.match_prior(mlp(1, classes=2, bias=False), x, prior=[0.9, 0.1], mode="guesses")
        shares.append(float((m.model(x).argmax(1) == 0).double().mean()))
    assert abs(np.mean(shares) - 0.9) < 5 * np.std(shares, ddof=1) / math.sqrt(60)


def test_priors_that_are_refused() -> None:
    x = torch.randn(100, 20)
    with pytest.raises(fg.InvalidInput, match="2 shares of at least 0"):
        fg.match_prior(mlp(1, 2), x, prior=[1.5, -0.5])
    with pytest.raises(fg.InvalidInput, match="labels below 2"):
        fg.match_prior(mlp(1, 2), (x, torch.arange(100) % 3))
    with pytest.raises(fg.InvalidInput, match="data with labels"):
        fg.match_prior(mlp(1, 2), x)
    with pytest.raises(fg.NotCovered, match="two classes"):
        fg.match_prior(mlp(1, 3), x, prior=[0.2, 0.3, 0.5], mode="guesses")


@pytest.mark.parametrize("how", ["head", "layers"])
def test_initializations_of_a_repaired_model_are_repaired(how: str) -> None:
    torch.manual_seed(0)
    model, x = mlp(bias=True), torch.randn(200, 20) + 0.5
    fixed = fg.repair(model, x, gamma=0.01, how=how).model  # type: ignore[arg-type]
    batches = collect(x)
    largest: list[float] = []
    source = source_of(model, batches)
    for seed in member_seeds(0, 0, 6):
        with source.member(int(seed)) as member:
            one = fg.repair(member, x, gamma=0.01, how=how).model  # type: ignore[arg-type]
        shares = torch.bincount(one(x).argmax(1), minlength=5).double() / len(x)
        largest.append(float(shares.max()))
    found = fg.measure(fixed, x, inits=6, seed=0)
    assert found.guesses.expected_max() == pytest.approx(np.mean(largest), abs=1e-9)
    assert fg.measure(model, x, inits=6, seed=0).guesses.expected_max() > 0.2 + np.mean(largest)
    assert [f.kind for f in found.findings if "repair" in f.message] == ["repaired"]


def test_a_repaired_head_without_bias_and_one_that_moved_since() -> None:
    torch.manual_seed(0)
    model, x = mlp(bias=False), torch.randn(200, 20) + 0.5
    fixed = fg.repair(model, x, gamma=0.0).model
    assert fg.measure(fixed, x, inits=6).layers[-1].gamma < 1e-3
    assert "_firstguess_repair" not in vars(model)
    with torch.no_grad():
        fixed.get_parameter("12.bias").add_(torch.arange(5.0))  # trained, or set: no longer what the repair made it
    assert "repaired" not in {f.kind for f in fg.measure(fixed, x, inits=6).findings}


def test_saved_weights_may_be_read_by_whom_other_files_may(tmp_path: Path) -> None:
    """safetensors writes for the owner alone."""
    plain = tmp_path / "plain"
    plain.touch()
    saved = fg.repair(mlp(2), torch.randn(50, 20)).save(tmp_path / "weights.safetensors")
    assert saved.stat().st_mode == plain.stat().st_mode
