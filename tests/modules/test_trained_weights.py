"""Drawn weights of any law, scale and block structure do not look trained; trained ones do."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributions import Exponential, Laplace, StudentT
from tuned import trained

from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.modules.members.sources import Instance, Setup
from firstguess.modules.members.weight_statistics import TRAINED, Numbers, differs, has_power, score

pytestmark = pytest.mark.usefixtures("one_thread")


def blocks(w: torch.Tensor, scales: tuple[float, ...] = (1.0, 10.0, 0.1)) -> torch.Tensor:
    return torch.cat([part * scale for part, scale in zip(w.tensor_split(len(scales)), scales, strict=True)])


def corner(m: int, n: int) -> torch.Tensor:
    return ((torch.arange(m)[:, None] < m // 4) & (torch.arange(n) < n // 4)).float()


LAWS: dict[str, Callable[[int, int], torch.Tensor]] = {
    "normal": torch.randn,
    "uniform": lambda m, n: torch.rand(m, n) - 0.5,
    "positive": torch.rand,
    "truncated": lambda m, n: nn.init.trunc_normal_(torch.empty(m, n), std=0.02),
    "Laplace": lambda m, n: Laplace(0.0, 1.0).sample((m, n)),
    "Student": lambda m, n: StudentT(3.0).sample((m, n)),
    "exponential": lambda m, n: Exponential(1.0).sample((m, n)),
    "lognormal": lambda m, n: torch.randn(m, n).exp(),
    "sparse": lambda m, n: nn.init.sparse_(torch.empty(m, n), 0.9),
    "blocks of rows": lambda m, n: blocks(torch.randn(m, n)),
    "blocks of columns": lambda m, n: blocks(torch.randn(n, m)).T,
    "blocks with means": lambda m, n: blocks(torch.rand(m, n)),
    "a scale for each row": lambda m, n: torch.randn(m, n) * torch.rand(m, 1).exp() ** 3,
    "orthogonal": lambda m, n: nn.init.orthogonal_(torch.empty(m, n)),
    "gates": lambda m, n: torch.cat([nn.init.orthogonal_(torch.empty(max(2, m // 4), n)) for _ in range(4)]),
    "identity and noise": lambda m, n: torch.eye(m, n) + 0.01 * torch.randn(m, n),
    "identity": torch.eye,
    "triangular": lambda m, n: torch.randn(m, n).tril(),
    "one corner": lambda m, n: torch.randn(m, n) * corner(m, n),
    "one large corner": lambda m, n: torch.randn(m, n) * (0.1 + corner(m, n)),
    "bfloat16": lambda m, n: (0.02 * torch.randn(m, n)).bfloat16(),
    "tiny float16": lambda m, n: (1e-6 * torch.randn(m, n)).half(),
    "padding": lambda m, n: torch.cat([torch.zeros(1, n), torch.randn(m - 1, n)]),
    "rows that repeat": lambda m, n: torch.randn(max(1, m // 4), n).repeat_interleave(4, 0),
    "a constant column": lambda m, n: torch.cat([torch.full((m, 1), 3.0), torch.randn(m, n - 1)], 1),
    "half constant": lambda m, n: torch.cat([torch.randn(m // 2, n), torch.ones(m - m // 2, n)]),
    "symmetric": lambda m, n: (lambda a: a + a.T)(torch.randn(m, m)),
    "small": lambda m, n: 1e-30 * torch.randn(m, n),
}
SHAPES = ((4, 384), (10, 64), (16, 9), (64, 64), (200, 50), (2, 768), (128, 512), (512, 9), (9, 9), (700, 300))


@pytest.mark.parametrize("law", LAWS)
def test_a_drawn_weight_does_not_look_trained(law: str) -> None:
    """Tracy and Widom's tail beyond 8 standard deviations is below 1e-9 a weight, of 30 here."""
    with IsolatedRandomness(11):
        assert max(score(LAWS[law](*shape)) for shape in SHAPES for _ in range(3)) < TRAINED


@pytest.mark.slow
def test_the_score_has_the_law_that_it_is_said_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its screen, 3000 normal weights: mean about 0, standard deviation below 1, so that 8 is far out.

    The largest is below 5.5: at a standard deviation of 0.67 that is s = 5.5/0.67·1.27 − 1.2 = 9.2 of Tracy and Widom's
    law, whose tail exp(−⅔s^1.5)/(4√π s^1.5) is 4e-11 there, of 3000 weights 1e-7.
    """
    from firstguess.modules.members import weight_statistics

    monkeypatch.setattr(weight_statistics, "_SCREEN", -1e9)
    with IsolatedRandomness(3):
        found = torch.tensor([score(torch.randn(48, 96)) for _ in range(3000)])
    assert abs(float(found.mean())) < 0.3
    assert 0.4 < float(found.std()) < 1.0
    assert float(found.max()) < 5.5


def test_scale_and_transposing_change_nothing() -> None:
    with IsolatedRandomness(5):
        w = torch.randn(40, 100)
        w += 2 * torch.randn(40, 1) @ torch.randn(1, 100)
    assert score(w) > TRAINED
    assert score(1e-12 * w) == pytest.approx(score(w), rel=1e-4)
    assert score(w.T.contiguous()) > TRAINED


def test_small_tensors_have_no_power() -> None:
    assert not has_power(torch.randn(4, 1000))
    assert not has_power(torch.randn(1000))
    assert has_power(torch.randn(16, 1, 3, 3))
    assert score(torch.ones(3, 1000)) == score(torch.arange(100)) == score(torch.full((20, 20), torch.nan)) == 0


def fresh_models() -> dict[str, Callable[[], nn.Module]]:
    def fused() -> nn.Module:
        model = nn.Sequential(nn.Linear(64, 192), nn.Linear(192, 4))
        with torch.no_grad():
            model[0].weight.copy_(blocks(model[0].weight, (1.0, 1.0, 0.05)))
        return model

    def tied() -> nn.Module:
        model = nn.Sequential(nn.Embedding(200, 64, padding_idx=0), nn.Linear(64, 200, bias=False))
        model[1].weight = model[0].weight
        return model

    def scaled() -> nn.Module:
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.3)
        return model

    return {
        "convolutions": lambda: nn.Sequential(
            nn.Conv2d(3, 32, 7), nn.BatchNorm2d(32), nn.Conv2d(32, 64, 3, groups=4), nn.ConvTranspose2d(64, 32, 3)
        ),
        "attention": lambda: nn.TransformerEncoderLayer(64, 4, 128),
        "transformer": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 3),
        "recurrent": lambda: nn.ModuleList([nn.LSTM(32, 64, 2), nn.GRU(32, 64), nn.Embedding(300, 32, padding_idx=0)]),
        "fused": fused,
        "tied": tied,
        "scaled": scaled,
    }  # fmt: skip


def looked(model: nn.Module) -> set[FindingKind]:
    setup = Setup("train", None, None, lambda model: None)
    return {finding.kind for finding in Instance(model, None, setup).findings}


LOOKS = {FindingKind.TRAINED, FindingKind.NOTHING_FRESH, FindingKind.MAYBE_TRAINED}


@pytest.mark.parametrize("name", fresh_models())
def test_a_fresh_model_does_not_look_trained(name: str) -> None:
    """Six draws of each."""
    for seed in range(6):
        with IsolatedRandomness(100 + seed):
            model = fresh_models()[name]()
        assert not looked(model) & LOOKS


@pytest.mark.parametrize("kind", ["bert", "gpt2", "vit"])
def test_a_fresh_hugging_face_model_does_not_look_trained(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        sizes = {
            "hidden_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 192,
            "vocab_size": 500,
        }
        configs = {
            "bert": lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)),
            "gpt2": lambda: transformers.GPT2LMHeadModel(
                transformers.GPT2Config(n_embd=96, n_layer=2, n_head=4, vocab_size=500)
            ),
            "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, image_size=64)),
        }
        with IsolatedRandomness(8):
            model = configs[kind]()
    assert not looked(model) & LOOKS


@pytest.mark.parametrize(("kind", "optimizer"), [("mlp", "adam"), ("mlp", "sgd"), ("wide", "adam"), ("cnn", "adam")])
def test_a_trained_model_looks_trained(kind: str, optimizer: str) -> None:
    """Trained on digits to over 90 %: nothing of it is taken for fresh."""
    model = trained(kind, optimizer)
    assert FindingKind.NOTHING_FRESH in looked(model)
    hidden = [p for p in model.parameters() if p.ndim > 1 and min(p.flatten(1).shape) >= 32]
    assert hidden
    assert all(score(p) > TRAINED for p in hidden)


@pytest.mark.parametrize(("size", "other"), [(1.0, False), (2.0, True), (0.5, True)])
def test_another_variance_is_another_draw(size: float, other: bool) -> None:
    """400 normal numbers: the F-ratio of 4 is 14 standard errors of a variance away; false alarm 1e-9."""
    torch.manual_seed(0)
    law = Numbers.of(*(torch.randn(100) for _ in range(200)))
    assert differs(Numbers.of(size * torch.randn(400)), law, 1e-9) == other
