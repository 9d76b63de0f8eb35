"""`firstguess train` and `predict-training`: how long the bias lasts, by training networks or without."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.base.progress import bar
from firstguess.base.text import is_path
from firstguess.cli import subjects
from firstguess.cli.output import Figure, Json, check_figure, examples, print_json, save_figure, say
from firstguess.cli.predict import KernelOptions, predicted_training
from firstguess.cli.subjects import POINTS, WORDS, DataOptions, option

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess.ensemble.trained import TrainedMembers
    from firstguess.theory.training.runs import PredictedTraining

_DRAWN: dict[str, Any] = {
    "shift": subjects.Shift,
    "width": subjects.Width,
    "draws": Annotated[int | None, typer.Option(help="Networks whose training is predicted. [default: 200]")],
}
_NETWORK, _TRAINING = "A network named by mlp, residual_mlp or cnn", "How it is trained"


_TRAINED: dict[str, Any] = {
    "test": option(str, "Held-out points: data likewise, or how many points of --data are held out."),
    "inits": option(int, "Networks that are trained."),
    "epochs": option(int, "Passes over the data; or --steps."),
    "level": option(float, "Share of the largest class at which the bias counts as absorbed."),
    "classes": subjects.Classes,
    "threads": option(int, "Members at a time. [default: one per core]"),
    "store": option(Path, "Keep members here: a stopped training resumes from there.", metavar="FOLDER"),
}


@subjects.takes("words", subjects.NETWORK, panel=_NETWORK)
@subjects.takes("learning", subjects.TRAINING, panel=_TRAINING)
@subjects.takes("how", _TRAINED, inits=50)
@subjects.reads_data()
@subjects.takes_model()
@examples("""Examples:

firstguess train mlp --depth 3 --data digits --test 300 --inits 20 --width 200 --lr 1e-4 --epochs 20 --batch 64

firstguess train "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)" --data two_blobs:n=150,d=100 --optimizer gd
--lr 2e-4 --steps 1000 --start biased --compare --figure training.png

firstguess train mymodels:Net --data mnist:even-odd --test mnist:test,even-odd --optimizer AdamW --batch 128 --epochs 5

firstguess train mymodels:Net --data x.npz --optimizer mymodels:make_optimizer --steps 5000 --store runs --json
""")
def train(
    what: Annotated[
        str,
        typer.Argument(
            autocompletion=subjects.builders,
            help="mlp, residual_mlp or cnn; a description; or module:factory (a class or function that makes a model).",
        ),
    ],
    *,
    source: DataOptions,
    words: dict[str, Any],
    learning: dict[str, Any],
    model: dict[str, Any],
    how: dict[str, Any],
    compare: Annotated[
        bool, typer.Option("--compare", help="Predict the same without training, and print both side by side.")
    ] = False,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Train many initializations and follow their guesses: how long does the bias last, and which class does it favour?

    Largest share, accuracies and loss are looked at after 0 to 7 steps, then ten times per decade. Ctrl-C keeps the
    curves so far; with --store, the same command resumes.
    """
    check_figure(figure)
    classes, epochs, test = (how.pop(name, None) for name in ("classes", "epochs", "test"))
    chosen, options = _subject(what, words, classes, model)
    described = isinstance(chosen, fg.Network)
    if compare and not described:
        raise InvalidInput("a description, to predict its training", got=what, where="--compare")
    optimizer = _optimizer(learning.pop("optimizer", "adam"), described=described)
    steps = learning.pop("steps", 1000 if epochs is None else None)
    given, held = _data(source, test)
    seed = source.seed
    if classes is None and described and given.classes is not None:
        chosen = fg.Network(chosen.layers, max(2, given.classes))
    rest: dict[str, Any] = {**learning, "level": how.pop("level", None)}
    predicted = None
    if compare:  # first: what cannot be predicted is said before anything is trained
        ends = steps if epochs is None else epochs * math.ceil(given.n / min(rest.get("batch") or given.n, given.n))
        theory: dict[str, Any] = {**rest, "optimizer": optimizer, "steps": ends, "width": model["width"]}
        with bar("training, predicted") as tick:
            predicted = fg.predict_training(chosen, data=given, test=held, seed=seed, progress=tick, **theory)
    with bar("training") as tick:
        rest |= {"optimizer": optimizer, "epochs": epochs, "steps": steps, "seed": seed}
        r = fg.train(chosen, data=given, test=held, progress=tick, **how, **rest, **options)
    _show(r, predicted, json=json, figure=figure)
    if r.interrupted:
        say("firstguess: interrupted; the page has what was computed")
        raise typer.Exit(130)


@subjects.takes("words", subjects.NETWORK, panel=_NETWORK)
@subjects.takes("learning", {**subjects.TRAINING, **subjects.SCHEDULE}, panel=_TRAINING)
@subjects.takes("source", {**subjects.DATA, **_DRAWN}, make=KernelOptions, data=subjects.REQUIRED, seed=0, width=1000)
@examples("""Examples:

firstguess predict-training mlp --depth 3 --data digits --lr 1e-4 --steps 1000 --figure training.png
""")
def predict_training(
    network: Annotated[
        str, typer.Argument(autocompletion=subjects.builders, help="mlp, residual_mlp, cnn, or a description.")
    ],
    source: KernelOptions,
    words: dict[str, Any],
    learning: dict[str, Any],
    classes: subjects.Classes = None,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Predict how training absorbs the bias, from kernels of the data: no network is trained."""
    check_figure(figure)
    described = subjects.described_by(network, words, classes)
    predicted_training(described, source, learning, json=json, figure=figure)


def _subject(
    what: str, words: dict[str, Any], classes: int | None, model: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """A description or what makes a model, and the options of `fg.train` that only its kind takes."""
    if what in WORDS:
        described = subjects.described_by(what, words, classes)
        return described, subjects.subject(str(described), **model)[1]
    idle = [subjects.dashed(name) for name in words]
    if idle and is_path(what):
        raise InvalidInput("these options with mlp, residual_mlp or cnn only", got=", ".join(idle), where=what)
    chosen, options = subjects.subject(what, **model)
    if not isinstance(chosen, str):
        return chosen, {**options, "classes": classes}
    return subjects.described_by(what, words, classes), options


def _optimizer(text: str, *, described: bool) -> Any:
    if described or text in ("gd", "sgd", "adam"):
        return text
    if is_path(text):
        from firstguess.modules.members.sources import found_at

        return found_at(text)
    import torch

    found = getattr(torch.optim, text, None)
    if not isinstance(found, type) or not issubclass(found, torch.optim.Optimizer):
        expected = "gd, sgd, adam, a class of torch.optim, or module:function"
        raise InvalidInput(expected, got=text, where="--optimizer", hint="AdamW")
    return found


def _data(asked: DataOptions, test: str | None) -> tuple[Data, Data | None]:
    """Training points, and held-out ones: from their own name, or this many of the same."""
    from firstguess.data import Data

    if test is None or not test.isdecimal():
        given = _loaded(asked)
        return given, None if test is None else replace(asked, data=test).some()
    count = int(test)
    more = replace(asked, points=None if asked.points is None else asked.points + count)
    whole = _loaded(more)
    if not 0 < count <= whole.n - 2:
        raise InvalidInput(f"fewer held-out points than the {whole.n} there are", got=count, where="--test")
    if whole.y is None:
        raise InvalidInput("labelled points", got="points without labels", where="--data", hint="--data digits")
    # Points are drawn at random where they were cut, else in the order of their file: so they are dealt here.
    import numpy as np

    order = np.random.default_rng([asked.seed, 0x7E57]).permutation(whole.n)
    parts = (order[count:], order[:count])
    train, held = (Data(whole.x[rows], whole.y[rows], name=whole.name, class_names=whole.class_names) for rows in parts)
    return train, held


def _loaded(asked: DataOptions) -> Data:
    found = asked.some()
    if asked.points is None and found.n == POINTS:
        say(f"{POINTS} points (--points takes more)")
    return found


def _show(r: TrainedMembers, predicted: PredictedTraining | None, *, json: bool, figure: Path | None) -> None:
    """The page or JSON, and the figure."""
    pages, found = [str(r)], r.to_dict()
    if predicted is not None:
        both = fg.compare(predicted, r)
        pages += [str(predicted), str(both)]
        found = {"trained": found, "predicted": predicted.to_dict(), "comparison": both.to_dict()}
    if json:
        print_json(found)
    else:
        typer.echo("\n\n".join(pages))
    if figure is not None:
        runs: Any = r if predicted is None else {"predicted": predicted, "trained": r}
        save_figure(fg.figures.training_chart(runs), figure)
