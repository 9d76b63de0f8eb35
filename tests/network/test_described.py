"""What is given as a network, and what was meant when it is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import firstguess as fg

X = torch.randn(30, 6, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("word", ["mlp", "residual_mlp", "cnn"])
def test_a_builders_word_is_its_network(word: str) -> None:
    assert fg.predict(word).gamma[-1] == fg.predict(getattr(fg, word)()).gamma[-1]
    assert fg.predict(f" {word} ", classes=7).guesses.classes == 7


def test_python_takes_what_the_shell_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_nets.py").write_text(
        "import torch\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    m = fg.measure("their_nets:make", X, inits=4)
    assert m.classes == 3
    assert fg.measure_gradients("their_nets:make", X, inits=2).inits == 2
    assert fg.read("their_nets:make", X).network is not None
    sys.modules.pop("their_nets")
    alone = fg.measure("mlp", X, inits=4, width=10)
    assert alone.provenance["network"] == str(fg.mlp())
    with pytest.raises(fg.InvalidInput, match=r"one of make, torch"):
        fg.measure("their_nets:maker", X, inits=4)
    with pytest.raises(fg.InvalidInput, match="a module that can be imported"):
        fg.diagnose("no_such_module:make", X)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mpl", "Try: 'mlp'"),
        ("resnet_mlp", "Try: 'residual_mlp'"),
        ("mypkg.models", "Try: mypkg.models:make_model"),
        ("mypkg:make", "fg.read(model, data).network"),
        (torch.nn.Linear(3, 2), "fg.read(model, data).network"),
        (X, "fg.mlp(depth=20)"),
    ],
)
def test_what_was_meant(given: object, said: str) -> None:
    with pytest.raises(fg.FirstguessError) as caught:
        fg.predict(given)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_torchs_own_words() -> None:
    assert fg.mlp(3, norm="LayerNorm") == fg.mlp(3, norm="layernorm")
    for module, hint in ((torch.nn.ReLU(), "Try: 'relu'"), (torch.nn.LeakyReLU(), "fg.activation('leaky_relu', slope")):
        with pytest.raises(fg.InvalidInput) as caught:
            fg.mlp(3, module)  # type: ignore[arg-type]
        assert hint in str(caught.value)
    with pytest.raises(fg.InvalidInput, match=r"the module GELU.*'gelu'"):
        fg.mlp(3, torch.nn.GELU)  # type: ignore[arg-type]
    for norm, hint in ((torch.nn.LayerNorm(5), "'layernorm'"), (torch.nn.BatchNorm1d, "'batchnorm'")):
        with pytest.raises(fg.InvalidInput, match=hint):
            fg.mlp(3, norm=norm)  # type: ignore[arg-type]


def test_swapped_arguments() -> None:
    model = torch.nn.Linear(6, 3)
    for call in (fg.diagnose, fg.measure):
        with pytest.raises(fg.InvalidInput, match="the model comes first"):
            call(fg.data.blob(10, 6), model)
    with pytest.raises(fg.InvalidInput, match="the model comes first"):
        fg.diagnose(fg.data.blob(10, 6), "mlp")
    with pytest.raises(fg.InvalidInput, match="Try: network first, then data="):
        fg.predict(fg.data.blob(10, 6), model)  # type: ignore[misc]
    with pytest.raises(fg.InvalidInput, match=r"fg\.mlp\(5, 'relu'\)"):
        fg.mlp("relu", 5)  # type: ignore[arg-type]


def test_options_of_a_network_and_missing_data() -> None:
    with pytest.raises(fg.InvalidInput, match=r"Try: fg\.mlp\(depth=3\) as the network"):
        fg.predict("mlp", depth=3)  # type: ignore[call-arg]
    with pytest.raises(fg.InvalidInput, match=r"got no data\. Try: fg\.measure\(model, x\)"):
        fg.measure("mlp")  # type: ignore[call-arg]


def test_a_name_of_the_package_that_is_nearly_right() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = fg.meassure  # type: ignore[attr-defined]
    assert (caught.value.name, caught.value.obj) == ("meassure", fg)  # from these Python says: did you mean 'measure'?
