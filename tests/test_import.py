"""What is loaded when: theory needs neither torch nor altair nor pyarrow."""

from __future__ import annotations

import ast
import inspect
import json
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import firstguess as fg
from firstguess.base.checks import keywords
from firstguess.modules.options import ModelOptions

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


# Public up to version 0.2: they keep working, listed or not.
OLD = """
    Activation Comparison DataBias Diagnosis EarlyEvaluation EmpiricalGuesses Explanation FiniteSize FirstguessError
    FixedPoint Frontier Gradients Grid Guesses Inputs InvalidInput Logits Matched Measurement MixedGuesses Network
    NotConverged NotCovered NotEven NotFinite NotNeutral ParseError PhaseDiagram PredictedTraining Prediction
    Repaired Stand Structure Study Tokens TrainedMembers TrainingComparison Tuned Watch WatchedTraining __version__
    activation assert_even assert_neutral causes_bias centered cnn compare data data_bias diagnose edge_of_chaos
    explain_guess figures fixed_point frontier grid match_prior measure measure_gradients mixer mlp neutrality_line
    phase_diagram predict predict_training read regime register_activation repair residual_mlp schedules study train
    transformer tune watch width_needed
"""


def test_every_public_name_resolves() -> None:
    loaded_after("import firstguess as fg\nfor name in dir(fg): getattr(fg, name)")
    assert 25 <= len(dir(fg)) == len(set(dir(fg))) <= 32
    for module in (fg.results, fg.errors, fg.phases):
        assert all(getattr(module, name) is getattr(fg, name) for name in dir(module))
    assert fg.__version__


def test_names_of_earlier_versions_keep_working() -> None:
    for name in OLD.split():
        assert getattr(fg, name) is not None
    assert {"_lazy", "nonsense"}.isdisjoint(dir(fg))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = fg.nonsense


# Files of several public functions: each is one subject, and CONTRIBUTING's map names it.
SEVERAL = {"builders", "registry", "fixed_points", "study", "assert_even", "predict", "prediction"}


def test_a_public_function_lives_in_the_file_of_its_name() -> None:
    functions = [one for name in OLD.split() + dir(fg) if inspect.isfunction(one := getattr(fg, name))]
    elsewhere = {
        one.__name__: inspect.unwrap(one).__module__
        for one in functions
        if inspect.unwrap(one).__module__.rpartition(".")[2] not in (one.__name__, *SEVERAL)
    }
    assert len(functions) > 20
    assert not elsewhere


def test_the_stub_is_what_is_imported() -> None:
    """A name stands once, in the stub: it says the same to editors and to the interpreter."""
    for module in (fg, fg.results, fg.errors, fg.phases):
        tree = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8"))
        named = {found.name for node in tree.body if isinstance(node, ast.ImportFrom) for found in node.names}
        assert set(dir(module)) <= named
        assert all(getattr(module, name) is not None for name in named)


def test_a_type_checker_knows_names_and_their_types(tmp_path: Path) -> None:
    """As for a user, whose file imports an installed package: `py.typed`, and the names of `__all__`."""
    names = {
        "predict": "Prediction",
        "measure": "Measurement",
        "diagnose": "Diagnosis",
        "phase_diagram": "PhaseDiagram",
    }
    lines = [f"reveal_type(fg.{name})" for name in names]
    program = tmp_path / "mine.py"
    program.write_text(
        "\n".join(["import firstguess as fg", *lines, 'reveal_type(fg.predict("mlp").plot())', "fg.nonsense"])
    )
    source = Path(fg.__file__).parent.parent
    settings = {"include": ["mine.py"], "extraPaths": [str(source)], "typeCheckingMode": "strict"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = [(one["range"]["start"]["line"], one["message"]) for one in json.loads(done.stdout)["generalDiagnostics"]]
    for line, (name, result) in enumerate(names.items(), start=1):
        assert any(at == line and f"-> {result}" in words for at, words in said), (name, said)
    assert any(at == len(names) + 1 and "LayerChart" in words for at, words in said), said
    assert any(at == len(names) + 2 and '"nonsense" is not a known attribute' in words for at, words in said), said


def test_help_fits_two_screens_and_names_everything() -> None:
    page = pydoc.plain(pydoc.render_doc(fg))
    assert len(page.splitlines()) <= 100
    missing = [name for name in dir(fg) if name != "__version__" and not re.search(rf"\b{name}\b", fg.__doc__ or "")]
    assert not missing, "the text at the top of firstguess/__init__.py is all that help(fg) shows: name them there"


def test_a_prediction_in_the_shell_loads_only_what_it_uses() -> None:
    """Half a second instead of one: these parts of SciPy take longer to load than the prediction takes."""
    program = (
        "import sys\nsys.argv = ['firstguess', 'predict', 'mlp', '--depth', '20']\nfrom firstguess.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m in ('scipy.optimize', 'scipy.interpolate', 'scipy.fft', 'scipy.linalg', "
        "'scipy.stats', 'torch', 'altair', 'pyarrow')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_loads_not_even_typing() -> None:
    """10 ms are the limit, and `typing` alone takes six. `-S`: what an environment loads at its start is not ours."""
    source = str(Path(fg.__file__).parent.parent)
    program = f"import sys\nsys.path.insert(0, {source!r})\nimport firstguess\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert {name for name in done.stdout.split() if name.startswith("firstguess")} == {
        "firstguess",
        "firstguess._version",
    }
    assert not set(done.stdout.split()) & {"typing", "re", "importlib", "collections", "enum"}


@pytest.mark.parametrize(
    "first",
    [
        "fg.PhaseDiagram",
        "import firstguess.theory.phases.phase_diagram",
        "import firstguess.theory.phases.fixed_points",
    ],
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
    """An editor sees every keyword (PEP 692), and one that does not exist is refused as other bad input is."""
    verb = getattr(fg, name)
    parameters = inspect.signature(verb).parameters.values()
    assert not any(p.kind is p.VAR_POSITIONAL for p in parameters)
    assert {p.annotation for p in parameters if p.kind is p.VAR_KEYWORD} <= {"Unpack[ModelOptions]"}
    with pytest.raises(fg.InvalidInput, match=f"an option of {name}: .*seed=.*but got sed="):
        verb("dense > relu > dense", None, sed=1)


def test_the_verbs_that_measure_take_the_same_options() -> None:
    options = {
        name: set(keywords(getattr(fg, name)))
        for name in ("measure", "diagnose", "assert_even", "explain_guess", "measure_gradients", "train")
    }
    assert options["measure"] < options["diagnose"]
    assert options["measure"] < options["assert_even"]
    assert {"init", "logits", "mode", "node", "device", "dtype", "strategy"} <= set.intersection(
        *(options[name] for name in ("measure", "diagnose", "assert_even", "explain_guess"))
    )
    documented = inspect.getdoc(ModelOptions) or ""
    assert all(f"\n    {name}: " in documented for name in ModelOptions.__annotations__)


def test_help_fits_a_screen() -> None:
    """What `help(fg.diagnose)` prints after the signature, which is one line to it."""
    for name in ("diagnose", "measure", "assert_even", "explain_guess", "measure_gradients"):
        assert len((inspect.getdoc(getattr(fg, name)) or "").splitlines()) <= 45, name


def test_an_option_that_another_verb_has_is_refused() -> None:
    x = [[0.0, 1.0], [1.0, 0.0]]
    for verb, option in ((fg.explain_guess, "scale"), (fg.measure_gradients, "node"), (fg.measure, "options")):
        with pytest.raises(fg.InvalidInput, match=f"an option of {verb.__name__}: .*but got {option}="):
            verb("dense > relu > dense", x, **{option: None})
    with pytest.raises(fg.InvalidInput, match=r"an option of measure for this kind of network: .*but got init="):
        fg.measure("dense > relu > dense", x, init="orthogonal")
