"""Diagnoses of networks whose answer is known."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diagnoses import gradients, sample
from torch import nn

import firstguess as fg
from firstguess.diagnosis import Advice
from firstguess.diagnosis.answer import trainability_of
from firstguess.diagnosis.diagnose import _is_tied  # pyright: ignore[reportPrivateUsage]
from firstguess.ensemble.gradient_statistics import Growth
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.modules.members.redraw import Redraw
from firstguess.show.report import content

BLOB = fg.data.blob(200, 40)


def mlp(depth: int, *norms: str, width: int = 100, classes: int = 2) -> nn.Sequential:
    """[Linear, ReLU] blocks; norms "before" or "after" the ReLU. Kaiming is set by init= in the call."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers.append(nn.Linear(40 if i == 0 else width, width, bias=False))
        layers += [nn.LayerNorm(width)] if "before" in norms else []
        layers.append(nn.ReLU())
        layers += [nn.LayerNorm(width)] if "after" in norms else []
    return nn.Sequential(*layers, nn.Linear(width, classes, bias=False))


def test_norm_before_is_biased_and_moving_it_cures():
    d = fg.diagnose(mlp(10, "before"), BLOB, inits=40, init=(2.0, 0.0))
    assert d.verdict.name in ("biased", "deeply biased")
    assert d.verdict.low <= d.verdict.gamma <= d.verdict.high
    assert d.causes[0].kind == "ReLU"
    assert d.causes[0].words == "the 10 ReLU layers"
    assert d.expected.prediction is not None
    assert d.expected.comparison is not None
    best = d.advice[0]
    assert best.remedy in ("move the norm", "centre the activation", "centre the head")
    moved = next(a for a in d.advice if a.remedy == "move the norm")
    assert moved.helps
    assert moved.how == ("predicted" if d.expected.trusted else "measured")
    assert moved.gamma_after < 0.2 < 1 < moved.gamma_before


def test_norm_after_is_even():
    d = fg.diagnose(mlp(10, "after"), BLOB, inits=40, init=(2.0, 0.0))
    assert d.verdict.name == "even"
    assert d.verdict.probability > 0.9
    assert not any(a.remedy == "move the norm" for a in d.advice)


def test_torch_defaults_are_named_as_the_cause():
    model = nn.Sequential(*[m for _ in range(7) for m in (nn.Linear(40, 40), nn.ReLU())], nn.Linear(40, 3))
    d = fg.diagnose(model, BLOB, inits=30)
    assert d.verdict.name == "deeply biased"
    assert d.trainability is not None
    assert d.trainability.phase == "ordered"
    assert any("PyTorch's default initialization" in note for note in d.notes)
    edge = next(a for a in d.advice if a.remedy == "go to the edge of chaos")
    assert edge.gradient_before < 0.5
    assert edge.gradient_after == pytest.approx(1.0, abs=1e-6)
    assert "vanish" in d.case


def test_deep_plain_relu_at_the_edge_is_not_called_worse_than_even():
    d = fg.diagnose("12 x [dense(weight_var=2) > relu] > dense(weight_var=2)", BLOB, inits=40, width=200)
    assert d.verdict.name in ("biased", "deeply biased")
    assert d.trainability is not None
    assert d.trainability.phase == "edge of chaos"
    assert "train although the start is biased" in d.case


def test_uncentred_data_are_the_cause():
    x = np.random.default_rng(0).normal(size=(200, 40)) + 2.0
    d = fg.diagnose("3 x [dense(weight_var=1) > tanh] > dense", x, inits=40, width=200)
    assert d.causes[0].kind == "data"
    assert d.causes[0].after == pytest.approx(0.8, abs=0.02)  # m0/(m0+v0) = 4/5
    best = d.advice[0]
    assert best.remedy == "centre the data"
    assert best.helps
    assert best.gamma_after < 0.1


def test_rmsnorm_after_is_told_from_layernorm_after():
    d = fg.diagnose("10 x [dense(weight_var=2) > relu > rmsnorm] > dense(weight_var=2)", BLOB, inits=30, width=200)
    changed = next(a for a in d.advice if a.remedy == "LayerNorm for RMSNorm")
    assert changed.helps
    assert changed.gamma_after < 0.2


def test_zero_head_is_degenerate_and_gets_weights():
    def factory() -> nn.Module:
        made = mlp(2, classes=4)
        nn.init.zeros_(made[-1].weight)  # type: ignore[arg-type]
        return made

    d = fg.diagnose(factory, BLOB, inits=10)
    assert d.verdict.name == "degenerate head"
    assert math.isnan(d.verdict.gamma)
    assert any(a.remedy == "repair the head" for a in d.advice)


def test_nan_is_broken_with_its_layer():
    class Bad(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(x - 1e9)

    d = fg.diagnose(nn.Sequential(nn.Linear(40, 10), Bad(), nn.Linear(10, 2)), BLOB, inits=5)
    assert d.verdict.name == "broken"
    assert "1" in d.verdict.why
    assert "BROKEN" in str(d)


def test_unreadable_models_are_measured_and_edited():
    """A model whose forward decides by values cannot be read; its [norm, activation] pairs still can be turned."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(6, "before")
            self.scale = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.body(x)
            return y * self.scale if float(y.abs().max()) >= 0 else -y

    d = fg.diagnose(Odd(), BLOB, inits=30, init=(2.0, 0.0))
    assert d.expected.prediction is None
    assert "could not be read" in d.expected.why
    moved = next(a for a in d.advice if a.remedy == "move the norm")
    assert moved.how == "measured"
    assert moved.helps
    centred = next(a for a in d.advice if a.remedy == "centre the activation")
    assert centred.helps


def test_the_page_fits_and_the_data_are_plain(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    d = fg.diagnose(mlp(4, "before", classes=10), BLOB, inits=20, init=(2.0, 0.0))
    assert max(len(line) for line in str(d).splitlines()) <= 100
    answer, _, rest = str(d).partition("\n\n")
    assert len(answer.splitlines()) <= 12  # seen without scrolling, in a terminal of 24 lines
    assert len(rest.splitlines()) <= 60
    text = json.dumps(d.to_dict(), allow_nan=False)
    assert json.loads(text)["verdict"]["name"] == d.verdict.name
    assert d.verdict.name in repr(d)


def test_the_users_model_comes_back_as_it_was():
    model = mlp(3, "before")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state, names = torch.get_rng_state(), [type(m).__name__ for m in model]
    fg.diagnose(model, BLOB, inits=10)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [type(m).__name__ for m in model] == names
    assert model.training


def test_same_seed_same_numbers():
    a, b = (fg.diagnose(mlp(2, width=30), BLOB, inits=12, seed=3, seconds=600) for _ in range(2))
    assert a.verdict == b.verdict
    assert a.causes == b.causes
    assert [x.gamma_after for x in a.advice] == [x.gamma_after for x in b.advice]


def test_loaders_that_can_be_read_once():
    def stream():
        for start in range(0, 200, 50):
            yield torch.as_tensor(np.array(BLOB.x[start : start + 50])), torch.zeros(50, dtype=torch.long)

    d = fg.diagnose(mlp(2), stream(), inits=10)
    assert d.measurement is not None
    assert d.measurement.points == 200


def test_bad_input_is_refused_at_once():
    with pytest.raises(fg.InvalidInput, match="an nn\\.Module"):
        fg.diagnose(3, BLOB)
    with pytest.raises(fg.InvalidInput, match="seconds"):
        fg.diagnose(mlp(1), BLOB, seconds=0)


def test_advice_names_its_price():
    """LayerNorm after ReLU: even guesses, and gradients that grow by π/(π − 1) a layer (theory.md §5 for BatchNorm)."""
    d = fg.diagnose("8 x [dense(weight_var=2) > layernorm > relu] > dense", BLOB, inits=10, width=100)
    moved = next(a for a in d.advice if a.remedy == "move the norm")
    assert moved.gradient_after == pytest.approx(math.pi / (math.pi - 1), abs=0.01)
    assert "gradients then grow" in moved.note


def test_with_one_hidden_layer_theory_speaks_for_the_gradients_as_in_the_advice():
    """PyTorch's default, ReLU: χ̃ = σw²/2 = 1/6 (theory.md (10))."""
    d = fg.diagnose(nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 10)), BLOB, inits=10)
    assert d.trainability is not None
    assert "only one hidden layer has weights, and the first one's gradient has the scale" in d.trainability.words
    assert d.trainability.words.endswith("; theory predicts a change of × 0.41 per layer towards the input")
    edge = next(a for a in d.advice if a.remedy == "go to the edge of chaos")
    assert edge.gradient_before == pytest.approx(1 / 6)


def test_the_layers_that_are_said_are_those_that_were_fitted():
    d = fg.diagnose("6 x [dense(weight_var=2) > relu] > dense", BLOB, inits=6, width=60, advice=False)
    assert d.trainability is not None
    assert "over the last 5 of 6 hidden layers" in d.trainability.words
    three = fg.diagnose("3 x [dense(weight_var=2) > relu] > dense", BLOB, inits=6, width=60, advice=False)
    assert three.trainability is not None
    assert "over the last 2 of 3 hidden layers" in three.trainability.words


def test_where_no_one_factor_describes_the_layers_none_is_said():
    growth = Growth(math.nan, math.nan, math.nan, 8, 0.03, 3, 0.02, 0.04)
    t = trainability_of(replace(gradients(5), growth=growth), plain=True, predicted=0.5)
    assert (
        "change by × 0.17 towards the input over the last 3 of 4 hidden layers, but by no one factor: they shrink"
        in t.words
    )
    assert " a layer" not in t.words
    assert t.phase == "unknown"
    assert math.isnan(t.growth)
    assert math.isnan(t.depth_scale)


def test_a_phase_is_named_only_where_theory_has_the_same_factor():
    for predicted, phase in ((0.5, "ordered"), (math.nan, "unknown"), (15.0, "unknown")):
        assert trainability_of(gradients(12), plain=True, predicted=predicted).phase == phase
    assert trainability_of(gradients(12), plain=False).phase == "unknown"


def test_the_edge_of_chaos_says_what_it_does_to_guesses():
    """Without biases a ReLU network's guesses do not see the scale of the weights; gradients do (theory.md (10))."""
    d = fg.diagnose("5 x [dense(weight_var=1.5) > relu] > dense", BLOB, inits=10, width=60)
    edge = next(a for a in d.advice if a.remedy == "go to the edge of chaos")
    assert not edge.helps
    assert edge.worth_it
    assert edge.note.startswith("for gradients, not for even guesses")
    model = nn.Sequential(*[m for _ in range(7) for m in (nn.Linear(40, 40), nn.ReLU())], nn.Linear(40, 3))
    other = next(a for a in fg.diagnose(model, BLOB, inits=10).advice if a.remedy == "go to the edge of chaos")
    assert other.helps
    assert "not for even guesses" not in other.note


def test_changes_that_did_not_help_have_no_rank():
    d = sample()  # the second makes guesses less even
    assert [a.title for a in d.ranked] == ["norm after the activation"]
    text = str(d)
    assert text.index("What to change") < text.index("  1. norm after") < text.index("Tried, did not help")
    assert "Tried, did not help (before → after)\n  weights at the edge of chaos (predicted)\n" in text
    assert [(a["worth_it"], a["rank"]) for a in d.to_dict()["advice"]] == [(True, 1), (False, None)]
    only = str(replace(d, advice=d.advice[1:]))
    assert "What to change" not in only
    assert "Tried, did not help" in only


@pytest.mark.parametrize(
    ("aim", "gradients", "worth"),
    [
        ("guesses", (0.5, 0.9), False),
        ("gradients", (0.5, 0.9), True),
        ("gradients", (0.9, 2.0), False),
        ("gradients", (math.nan, math.nan), False),
        ("loss", (math.nan, math.nan), True),
    ],
)
def test_a_change_is_worth_making_for_its_aim(aim: Any, gradients: tuple[float, float], worth: bool):
    assert Advice("x", "", "predicted", 2.0, 2.0, 0.8, 0.8, 0.0, *gradients, aim=aim).worth_it is worth


class Repeated(nn.Module):
    """One layer four times, what it gives joined to the input: a description cannot say either, four times."""

    def __init__(self) -> None:
        super().__init__()
        self.l, self.h = nn.Linear(40, 20), nn.Linear(40, 2)
        with torch.no_grad():
            self.h.weight.mul_(30)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.cat([torch.relu(self.l(x)), torch.tanh(self.l(x))], 1)
        return self.h(x)


def test_nothing_is_said_twice():
    d = fg.diagnose(Repeated(), BLOB, inits=6, advice=False)
    assert any(f.layer == "h.weight" for f in d.findings)
    text = " ".join(str(d).split())
    assert all(text.count(" ".join(f.message.split())) == 1 for f in d.findings)
    assert d.structure is not None
    assert len(set(map(str, d.structure.unread))) < len(d.structure.unread)
    assert "(cat): joins several signals" in text
    for words in (text, str(d.structure), str(content.context(d)["unread"])):
        assert words.count("joins several signals") == 1
        assert "(4 times)" in " ".join(words.split())


def test_a_model_is_studied_once(monkeypatch: pytest.MonkeyPatch):
    """Measurement, flow, reading, gradients and centred data draw from one source; each edited model has its own."""
    studied: list[nn.Module] = []
    study = Redraw.__init__

    def counted(self: Redraw, model: nn.Module, *arguments: Any, **options: Any) -> None:
        studied.append(model)
        study(self, model, *arguments, **options)

    monkeypatch.setattr(Redraw, "__init__", counted)
    data = fg.data.Data(BLOB.x + 1.0)
    # Not described because of RReLU, so that remedies are measured.
    model = nn.Sequential(nn.Linear(40, 10), nn.RReLU(), nn.ReLU(), nn.Linear(10, 2))
    fg.diagnose(model, data, inits=6, advice=False)
    assert len(studied) == 1
    studied.clear()
    d = fg.diagnose(model, data, inits=6)
    assert {(a.remedy, a.how) for a in d.advice} == {
        (name, "measured") for name in ("centre the data", "centre the activation", "centre the head")
    }
    assert len(studied) == 2


def test_stages_leave_nothing_to_each_other():
    """A buffer that counts forwards is what it was at the start of each stage, and what they cache can be used."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(40, 20), nn.Linear(20, 2)
            self.register_buffer("calls", torch.zeros(()))
            self.cache: dict[str, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            scale = self.cache.setdefault("scale", torch.ones(20) * self.calls)
            return self.head(torch.relu(self.layer(x)) * scale)

    model = Counting()
    with torch.inference_mode():
        d = fg.diagnose(model, BLOB, inits=6, advice=False)
    assert d.trainability is not None
    assert not [note for note in d.notes if note.startswith("no ")]
    assert model.calls == 0
    assert not model.cache
    assert [layer.all for layer in d.trainability.gradients.layers] == [
        layer.all for layer in fg.measure_gradients(model, BLOB, inits=20).layers
    ]


def test_residual_blocks_have_no_factor_a_layer():
    """Theory has a factor for a block, a measured slope one for each of its layers: they are not laid side by side."""
    text = "dense > 3 x [residual[dense(weight_var=2) > relu > dense]] > relu > dense"
    d = fg.diagnose(text, BLOB, inits=20, width=50)
    assert d.advice
    assert all(math.isnan(a.gradient_before) for a in d.advice)
    plain = fg.diagnose("4 x [dense(weight_var=2) > relu] > dense", BLOB, inits=20, width=50)
    assert plain.trainability is not None
    assert any(a.gradient_before == plain.trainability.growth for a in plain.advice)  # one number on a page


@pytest.mark.parametrize("classes", [30, 12])
def test_a_tied_head_is_not_taken_for_a_set_bias(classes: int) -> None:
    """Its shares are the tokens' own frequencies, whatever is drawn."""

    class Tied(nn.Module):
        def __init__(self, tied: bool = True) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(classes, 16), nn.Linear(16, classes, bias=False)
            if tied:
                self.head.weight = self.embed.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.embed(ids)).mean(1))

    tied, untied = Tied(), Tied(tied=False)
    assert _is_tied(tied, classes)
    assert not _is_tied(tied, classes + 1)
    assert not _is_tied(untied, classes)
    ids = torch.randint(0, 3, (60, 4), generator=torch.Generator().manual_seed(0))  # three tokens of all
    d = fg.diagnose(tied, ids, inits=40, advice=False, progress=False)
    assert any(f.kind == FindingKind.CLASSES_DIFFER for f in fg.measure(tied, ids, inits=40).findings)
    assert not any(f.kind == FindingKind.CLASSES_DIFFER for f in d.findings)
