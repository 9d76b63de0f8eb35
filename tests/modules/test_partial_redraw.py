"""`redraw=` and `scale=`: what is fresh is drawn, the rest keeps its values, and the page says which is which."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from tuned import digits, mlp, trained

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.data import collect
from firstguess.diagnosis.assert_even import check
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.members.initializers import brief, chosen, head_of, weights_of
from firstguess.modules.members.sources import source_of

pytestmark = pytest.mark.usefixtures("one_thread")


def x(n: int = 200) -> torch.Tensor:
    return digits()[0][:n]


def members(what, count: int = 3, **options) -> list[dict[str, torch.Tensor]]:
    found = []
    members = source_of(what, collect(x(20)), **options)
    for seed in member_seeds(0, 0, count):
        with members.member(int(seed)) as model:
            found.append({name: value.detach().clone() for name, value in model.state_dict().items()})
    return found


def kinds(found) -> set[str]:
    return {str(finding.kind) for finding in found.findings}


def fine_tuned() -> nn.Sequential:
    """A trained body with a fresh head."""
    model = trained()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model[4] = nn.Linear(64, 10)
    return model


def test_causes_and_remedies_are_those_of_the_fresh_part() -> None:
    model = fine_tuned()
    d = fg.diagnose(model, digits(), inits=8, seconds=60)
    kept = {"0", "1", "2", "3", "(data)"}
    assert not [cause for cause in d.causes if kept & set(cause.steps)]
    assert {a.remedy for a in d.advice} == {"centre the head"}
    assert any("causes are those of the fresh part" in note for note in d.notes)
    assert fg.repair(model, digits(), gamma=0.1).gamma[1] == pytest.approx(0.1, rel=1e-3)  # without force


class InitializesAll(nn.Module):
    """As Hugging Face's models do: the model writes all of its Linear layers, with a standard deviation of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32))
        self.classifier = nn.Linear(32, 10)
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.body(x).relu())


def test_a_head_drawn_by_another_initializer_leaves_the_body_as_it_is() -> None:
    """A head that was put in as nn.Linear gives it: two initializers are known, and the body's is not run for it."""
    torch.manual_seed(3)
    model = InitializesAll()
    model.classifier = nn.Linear(32, 10)
    kept = {name: value for name, value in model.state_dict().items() if name.startswith("body")}
    drawn = members(model, redraw="head")
    for one in drawn:
        assert all(torch.equal(one[name], value) for name, value in kept.items())
        assert one["classifier.weight"].std() == pytest.approx(1 / np.sqrt(3 * 32), rel=0.2)
    assert not torch.equal(drawn[0]["classifier.weight"], drawn[1]["classifier.weight"])


# -- What is meant ----------------------------------------------------------------------------------------------------


class Two(nn.Module):
    """Two heads in a row of classes, one of them without a module, and a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 16)
        self.one, self.two = nn.Linear(16, 3), nn.Parameter(torch.randn(16, 2))
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x).relu()
        return torch.cat([self.one(h), h @ self.two], 1) / self.temperature


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 64))
        self.norm, self.frozen = nn.LayerNorm(64), nn.Linear(64, 64).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.norm(self.frozen(x)), self.table)


def test_the_head_is_what_no_weight_separates_from_the_logits() -> None:
    def run(model: nn.Module) -> torch.Tensor:
        return model(x(3))

    assert head_of(Two(), run) == {"one.weight", "one.bias", "two", "temperature"}
    assert head_of(Tied(), run) == {"table"}
    assert head_of(nn.Sequential(mlp(), nn.BatchNorm1d(10), nn.Tanh()), run) == {
        "0.4.weight", "0.4.bias", "1.weight", "1.bias"
    }  # fmt: skip
    normed = nn.Sequential(nn.Linear(64, 8), nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)))
    assert {name.split(".")[0] for name in head_of(normed, run)} == {"1"}
    tied = Tied()
    head_of(tied, run)
    assert not tied.frozen.weight.requires_grad


def test_names_modules_and_lists() -> None:
    model = nn.ModuleDict({"body": mlp(), "classifier": nn.Linear(4, 2)})
    head = {"classifier.weight", "classifier.bias"}
    assert chosen(model, "classifier*") == chosen(model, "classifier") == chosen(model, model["classifier"]) == head
    assert chosen(model, ["classifier.bias", "body.?.bias"]) == {
        "classifier.bias",
        *(f"body.{i}.bias" for i in (0, 2, 4)),
    }
    assert chosen(model, [model["body"], "classifier*"]) == set(dict(model.named_parameters()))
    assert brief(model, head) == "classifier"
    assert brief(model, head | {"body.0.weight"}) == "body.0.weight, classifier"
    for wrong in ("clasifier*", nn.Linear(2, 2), [], 3):
        with pytest.raises(InvalidInput, match="redraw"):
            chosen(model, wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("redraw", ["head", "4", "4*", ["4.weight", "4.bias"], "module"])
def test_only_what_is_named_is_drawn(redraw) -> None:
    model = mlp()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    one, two, _ = members(model, redraw=model[4] if redraw == "module" else redraw)
    for name, value in own.items():
        assert torch.equal(one[name], two[name]) == (not name.startswith("4"))
        if not name.startswith("4"):
            assert torch.equal(one[name], value)
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())


def test_a_factory_is_built_once_for_redraw() -> None:
    one, two, _ = members(mlp, redraw="head")
    assert torch.equal(one["0.weight"], two["0.weight"])
    assert not torch.equal(one["4.weight"], two["4.weight"])
    one, two, _ = members(mlp, redraw="all")
    assert not torch.equal(one["0.weight"], two["0.weight"])


def test_init_reaches_what_is_fresh_only() -> None:
    one, two, _ = members(mlp(), redraw="head", init="orthogonal")
    assert torch.equal(one["2.weight"], two["2.weight"])
    assert torch.allclose(one["4.weight"] @ one["4.weight"].T, torch.eye(10), atol=1e-5)


def test_descriptions_take_neither() -> None:
    for options in ({"redraw": "head"}, {"scale": 2.0}):
        with pytest.raises(InvalidInput):
            fg.measure("dense > relu > dense", x(), **options)
        with pytest.raises(InvalidInput):
            fg.measure_gradients("dense > relu > dense", x(), **options)


# -- What looks trained ------------------------------------------------------------------------------------------------


def test_a_fresh_head_on_a_trained_body_against_a_plain_loop() -> None:
    """By default the body is kept: the largest share is that of new heads on its features, within 5 standard errors."""
    model = fine_tuned()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    m = fg.measure(model, x(), inits=150)
    assert all(torch.equal(value, own[name]) for name, value in model.state_dict().items())
    assert "trained" in kinds(m)
    assert not kinds(m) & {"maybe trained", "other scale", "kept values"}
    tops = []
    with torch.no_grad():
        features = model[:4](x())
        for _ in range(600):
            guesses = nn.Linear(64, 10)(features).argmax(1)
            tops.append(float(guesses.bincount(minlength=10).max()) / len(guesses))
    error = np.hypot(np.std(tops) / np.sqrt(600), m.guesses.standard_error("expected_max"))
    assert abs(m.guesses.expected_max() - np.mean(tops)) < 5 * error
    assert all(np.isnan(layer.gamma_se) for layer in m.layers[:4])  # kept: members show no error of theirs
    assert m.layers[-1].gamma_se > 0
    everything = fg.measure(model, x(), inits=150, redraw="all")
    assert not kinds(everything) & {"trained", "fresh part"}
    assert abs(everything.guesses.expected_max() - np.mean(tops)) > 3 * error  # what was measured before


def test_a_verdict_is_of_the_fresh_part() -> None:
    d = fg.diagnose(fine_tuned(), x(), inits=30, seconds=10)
    assert d.verdict.why.startswith("of the fresh part: ")
    assert d.structure is None
    assert [a.remedy for a in d.advice] == ["centre the head"]  # what needs no theory, and leaves trained layers alone
    assert "of the fresh part" in str(d)
    found = check(fine_tuned(), x(), 1e4, inits=50)
    assert found.passed
    assert "trained at 0, 2" in found.message


def test_nothing_fresh_is_one_model_and_no_verdict() -> None:
    model = trained()
    m = fg.measure(model, x(), inits=50)
    assert m.inits == 1
    assert "nothing fresh" in kinds(m)
    with torch.no_grad():
        share = model(x()).argmax(1).bincount(minlength=10).numpy() / 200
    assert np.allclose(m.guesses.fractions[0], share)
    for refuse in (fg.diagnose, check):
        with pytest.raises(InvalidInput, match="all look trained"):
            refuse(model, x())
    assert fg.diagnose(model, x(), inits=10, seconds=5, redraw="head", advice=False).verdict.why.startswith(
        "of the fresh"
    )
    assert "nothing fresh" not in kinds(fg.measure(model, x(), inits=5, redraw="all"))
    assert "nothing fresh" not in kinds(fg.measure(model, x(), inits=5, trained=True))
    assert "nothing fresh" not in kinds(fg.measure(model, x(), inits=5, init="kaiming_normal"))


def test_gradients_of_a_trained_model() -> None:
    data = (x(), digits()[1][:200])
    g = fg.measure_gradients(trained(), data, inits=6)
    assert g.inits == 1
    assert FindingKind.NOTHING_FRESH in {f.kind for f in g.findings}
    g = fg.measure_gradients(trained(), data, inits=6, redraw="head")
    assert g.inits == 6


def test_a_head_that_its_owner_drew_in_another_way() -> None:
    """Another scale and a zero bias: drawn at that scale, and not certain. Without the bias nobody could tell."""
    model = fine_tuned()
    nn.init.normal_(model[4].weight, std=0.5)
    nn.init.zeros_(model[4].bias)
    m = fg.measure(model, x(), inits=5)
    assert {"trained", "maybe trained"} <= kinds(m)
    one, two, _ = members(model)
    assert not torch.equal(one["4.weight"], two["4.weight"])
    assert abs(float(two["4.weight"].std()) / 0.5 - 1) < 0.15  # 640 entries: 5 standard errors
    model[4] = nn.Linear(64, 10, bias=False)
    nn.init.normal_(model[4].weight, std=0.5)
    m = fg.measure(model, x(), inits=5)
    assert "nothing fresh" in kinds(m)
    assert "maybe trained" in kinds(m)


def test_a_table_that_was_set_by_a_formula_says_nothing_of_the_rest() -> None:
    """Sinusoids in an embedding are kept; the layers, which their owner drew by another rule, are drawn anyway."""
    table = torch.sin(torch.arange(64)[:, None] / 50 ** (torch.arange(32) / 32))
    model = nn.Sequential(
        nn.Embedding.from_pretrained(table), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.Flatten(),
        nn.Linear(512, 3),
    )  # fmt: skip
    for i in (1, 3, 5):
        nn.init.normal_(model.get_submodule(str(i)).get_parameter("weight"), std=0.3)
    ids = torch.randint(0, 64, (30, 8), generator=torch.Generator().manual_seed(0))
    source = source_of(model, collect(ids))
    found = {str(finding.kind): finding for finding in source.findings}
    assert found["trained"].layer == "0"
    assert "other scale" in found
    with source.member(1) as member:
        assert torch.equal(member.get_parameter("0.weight"), table)
        for i in (1, 3, 5):
            assert not torch.equal(member.get_parameter(f"{i}.weight"), model.get_parameter(f"{i}.weight"))


def test_running_statistics_of_a_kept_norm_stay() -> None:
    model = trained("cnn")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model[11] = nn.Linear(128, 10)
    one, two, _ = members(model, mode="eval")
    for name in ("2.running_mean", "5.running_var", "2.weight", "1.weight", "4.weight"):
        assert torch.equal(one[name], model.state_dict()[name])
    assert not torch.equal(one["11.weight"], two["11.weight"])
    assert "eval batchnorm" not in kinds(fg.measure(model, x(), inits=4, mode="eval"))


def test_a_factory_that_loads_a_body() -> None:
    body = trained()[:4]

    def build() -> nn.Module:
        fresh = mlp()
        fresh[:4].load_state_dict(body.state_dict())
        return fresh

    m = fg.measure(build, x(), inits=5)
    found = next(f for f in m.findings if f.kind == FindingKind.PART)
    assert found.layer == "0.weight, 2.weight"
    assert "fresh part" not in kinds(fg.measure(mlp, x(), inits=5))


# -- Scale -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("redraw", ["all", "head"])
def test_scale_multiplies_weights_drawn_and_kept(redraw: str) -> None:
    model = nn.Sequential(mlp(), nn.LayerNorm(10), nn.Linear(10, 3))
    plain, scaled = members(model, redraw=redraw), members(model, redraw=redraw, scale=0.5)
    again = members(model, redraw=redraw, scale=0.5)
    for i, member in enumerate(plain):
        for name, value in member.items():
            assert torch.equal(scaled[i][name], value * (0.5 if value.ndim > 1 else 1.0))
            assert torch.equal(scaled[i][name], again[i][name])


def test_scale_of_a_factory_and_what_it_leaves_alone() -> None:
    plain, scaled = members(mlp), members(mlp, scale=3.0)
    assert torch.equal(plain[1]["2.weight"] * 3.0, scaled[1]["2.weight"])
    assert torch.equal(plain[1]["2.bias"], scaled[1]["2.bias"])
    model = nn.ModuleDict({"norm": nn.LayerNorm((3, 4)), "table": nn.Embedding(3, 4), "dense": nn.Linear(4, 2)})
    model.register_parameter("position_bias", nn.Parameter(torch.zeros(3, 3)))
    assert weights_of(model) == ["table.weight", "dense.weight"]
    for wrong in (0.0, -1.0, float("nan"), True):
        with pytest.raises(InvalidInput, match="scale"):
            fg.measure(mlp(), x(), scale=wrong)


def test_a_trained_model_at_three_scales_against_a_plain_loop() -> None:
    """New heads on the trained body with all weights × 0.5, 1 and 1.5: within 5 standard errors."""
    model, largest = fine_tuned(), []
    for scale in (0.5, 1.0, 1.5):
        m = fg.measure(model, x(), inits=100, scale=scale)
        largest.append(m.guesses.expected_max())
        body, tops = fine_tuned(), []
        with torch.no_grad():
            for name in ("0", "2"):
                body.get_submodule(name).weight.mul_(scale)
            features = body[:4](x())
            for _ in range(400):
                head = nn.Linear(64, 10)
                head.weight.mul_(scale)
                tops.append(float(head(features).argmax(1).bincount(minlength=10).max()) / 200)
        error = np.hypot(np.std(tops) / 20, m.guesses.standard_error("expected_max"))
        assert abs(largest[-1] - np.mean(tops)) < 5 * error
