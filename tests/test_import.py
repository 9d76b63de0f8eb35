"""What is loaded when: theory needs neither torch nor altair nor pyarrow."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import firstguess as fg

HEAVY = ("torch", "altair", "pyarrow", "vl_convert", "sklearn", "pandas")


def loaded_after(code: str) -> set[str]:
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import firstguess",
        "import firstguess as fg; fg.predict(fg.mlp(20, norm='layernorm', classes=10)).guesses.std()",
        "import firstguess as fg; fg.edge_of_chaos('tanh', bias_var=0.05); fg.neutrality_line('tanh', bias_var=0.05)",
        "import firstguess as fg; fg.phase_diagram('relu', weight_vars=[1.0], bias_vars=[0.1])",
        "import firstguess as fg; fg.predict('dense > relu > maxpool(4) > dense'); fg.causes_bias('gelu')",
    ],
)
def test_theory_loads_no_heavy_package(code: str) -> None:
    assert not loaded_after(code) & set(HEAVY)


def test_importing_does_no_work() -> None:
    """Not even NumPy: names are resolved when they are used."""
    assert not loaded_after("import firstguess") & {"numpy", "scipy"}


def test_every_public_name_resolves() -> None:
    program = (
        "import firstguess as fg\nfor name in fg.__all__: getattr(fg, name)\nassert set(fg.__all__) <= set(dir(fg))"
    )
    loaded_after(program)
    assert len(fg.__all__) == len(set(fg.__all__))
    assert fg.__version__


@pytest.mark.parametrize(
    "first", ["fg.PhaseDiagram", "import firstguess.theory.diagrams", "import firstguess.theory.phases"]
)
def test_functions_are_not_shadowed_by_modules_of_the_same_name(first: str) -> None:
    loaded_after(f"import firstguess as fg\n{first}\nassert callable(fg.phase_diagram)\nassert callable(fg.predict)")


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        fg.nonsense  # noqa: B018


def test_errors_are_one_family() -> None:
    for name in ("InvalidInput", "ParseError", "NotCovered", "NotConverged"):
        assert issubclass(getattr(fg, name), fg.FirstguessError)
    assert issubclass(fg.InvalidInput, ValueError)
    error = fg.InvalidInput("a thing", got=3, hint="another")
    assert str(error) == "Expected a thing, but got 3. Try: another"
    assert str(error.at("layer 2")) == "Expected a thing, but got 3, at layer 2. Try: another"
    assert error.at("layer 2").at("layer 9").where == "layer 2"


@pytest.mark.parametrize(
    "name", ["predict", "measure", "measure_gradients", "diagnose", "assert_even", "explain_guess"]
)
def test_verbs_show_their_options(name: str) -> None:
    """An editor sees every keyword, and one that does not exist is refused as other bad input is."""
    verb = getattr(fg, name)
    parameters = inspect.signature(verb).parameters.values()
    assert {p.kind for p in parameters} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    with pytest.raises(fg.InvalidInput, match=f"an option of {name}: .*seed=.*but got sed="):
        verb("dense > relu > dense", None, sed=1)


def test_the_verbs_that_measure_take_the_same_options() -> None:
    options = {
        name: {key: p.annotation for key, p in inspect.signature(getattr(fg, name)).parameters.items()}
        for name in ("measure", "diagnose", "assert_even", "explain_guess")
    }
    assert set(options["measure"]) < set(options["diagnose"])
    assert set(options["measure"]) < set(options["assert_even"])
    engine = {"init", "logits", "mode", "node", "device", "dtype", "strategy"}
    for key in engine:
        assert len({one[key] for one in options.values()}) == 1, key
