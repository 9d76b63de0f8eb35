# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The page of `firstguess explore`: a marimo app. What it shows is made in the modules next to it."""

# pyright: basic, reportUnusedExpression=false, reportOptionalOperand=false
import marimo

app = marimo.App(width="full", app_title="firstguess: what a network believes before it has learned anything")


@app.cell(hide_code=True)
async def _():
    import importlib
    import sys

    import marimo as mo

    wheel = ""  # of the page that runs in a browser alone: `export` of server.py puts its file's name here
    if sys.platform == "emscripten":
        micropip = importlib.import_module("micropip")
        await micropip.install(["numpy", "scipy", "pillow", "threadpoolctl"])
        await micropip.install(str(mo.notebook_location() / "public" / wheel), deps=False)
    # By name: marimo would look for what is imported on the package index, before any cell runs.
    choice, panels = (importlib.import_module(f"firstguess.explore.{name}") for name in ("choice", "panels"))
    FirstguessError = importlib.import_module("firstguess").FirstguessError

    mo.md("# firstguess\nWhat a neural network believes before it has learned anything. Compose one:")
    return FirstguessError, choice, mo, panels, sys


@app.cell(hide_code=True)
def _(FirstguessError, choice, mo, panels):
    try:
        start, problem = choice.Choice.of(mo.query_params().to_dict()), ""
    except FirstguessError as _error:
        start, problem = choice.Choice(), f"The link was not understood: {_error}"

    _rates = [round(m * 10.0**k, 10) for k in range(-4, 0) for m in (1, 2, 5)] + [1.0]
    _lr = min(_rates, key=lambda r: abs(r - start.lr))
    _norm_position = {"before": False, "after": True}

    def _one_of(values, value, label):
        return mo.ui.dropdown(values if isinstance(values, dict) else list(values), value=value, label=label)

    def _slider(*ends, label, **where):
        return mo.ui.slider(*ends, label=label, show_value=True, **where)

    # By the names of a `Choice`.
    controls = mo.ui.dictionary(
        {
            "kind": _one_of(choice.KINDS, start.kind, "Network"),
            "activation": _one_of(choice.ACTIVATIONS, start.activation, "Activation"),
            "depth": _slider(1, 100, value=start.depth, label="Depth"),
            "norm": _one_of(choice.NORMS, start.norm, "Norm"),
            "after": _one_of(_norm_position, "after" if start.after else "before", "Norm position"),
            "pool": _one_of(choice.POOLS, start.pool, "Pooling"),
            "style": _one_of(choice.STYLES, start.style, "Style"),
            "length": _slider(2, 128, value=start.length, label="Tokens"),
            "weight_var": _slider(0.1, 6.0, 0.05, value=start.weight_var, label="Weight variance"),
            "bias_var": _slider(0.0, 2.0, 0.01, value=start.bias_var, label="Bias variance"),
            "classes": _slider(2, 100, value=start.classes, label="Classes"),
            "mean_square": _slider(0.0, 4.0, 0.05, value=start.mean_square, label="Input mean² (0 = centred)"),
            "lr": _slider(steps=_rates, value=_lr, label="Learning rate"),
            "text": mo.ui.text_area(value=start.text, label="Network, as text", full_width=True, rows=2),
        }
    )
    before, set_before = mo.state(None)  # the network that the shown one is compared with
    mo.Html(panels.presets() + panels.message(problem))
    return before, controls, set_before


@app.cell(hide_code=True)
def _(controls, mo, panels):
    _own = {
        "plain": "activation depth norm after pool weight_var bias_var mean_square lr",
        "residual": "activation depth norm after weight_var bias_var mean_square lr",
        "transformer": "style depth length",
        "text": "text mean_square length lr",
    }[controls.value["kind"]]
    keep = mo.ui.run_button(label="Compare with this")
    _shown = [*(controls[name] for name in ("kind", *_own.split(), "classes")), keep]
    # The mark tells the style sheet which cell stays in sight while the page is scrolled.
    _mark = mo.Html(f'{panels.STYLE}<span class="fg-controls"></span>')
    mo.vstack([_mark, mo.hstack(_shown, justify="start", wrap=True, gap=1.2)])
    return (keep,)


@app.cell(hide_code=True)
def _(FirstguessError, before, choice, controls, mo, panels):
    chosen = choice.Choice(**controls.value)
    try:
        network, at = chosen.network, choice.see(chosen, whole=False)
        _shown = panels.live(at, before())
    except FirstguessError as _error:
        network, at, _shown = None, None, panels.refused(chosen, str(_error))
    mo.Html(_shown)
    return at, chosen, network


@app.cell(hide_code=True)
def _(at, before, keep, set_before):
    # The panels follow `before`, so this runs again: once is enough.
    if keep.value and at is not None and (before() is None or before().choice != at.choice):
        set_before(at)
    return


@app.cell(hide_code=True)
def _(FirstguessError, at, choice, chosen, mo, network, panels):
    _rest = panels.rest(choice.with_the_rest(at), at.later) if at is not None else ""
    try:
        _found = choice.phases_of(chosen) if network is not None else ""
        _drawn = isinstance(_found, tuple)
        _told = panels.phases(chosen, *_found, _rest) if _drawn else panels.no_phases(_found, _rest)
    except FirstguessError as _error:
        _told = panels.no_phases(_error.reason, _rest)
    _shown = mo.Html(_told if network is not None else "")
    _shown  # noqa: B018
    return


@app.cell(hide_code=True)
def _(mo):
    predict_changes = mo.ui.run_button(label="Predict changes")
    return (predict_changes,)


@app.cell(hide_code=True)
def _(choice, chosen, mo, network, predict_changes, sys):
    # remedies come with PyTorch code, and a browser alone has no PyTorch
    _tokens = network is not None and choice.of_tokens(chosen) and sys.platform != "emscripten"
    mo.hstack([mo.md("**What each change does**"), predict_changes], justify="start", wrap=True) if _tokens else mo.md(
        ""
    )
    return


@app.cell(hide_code=True)
def _(FirstguessError, choice, chosen, mo, network, panels, predict_changes):
    def _changes():
        import importlib

        on_data = importlib.import_module("firstguess.explore.on_data")
        with mo.status.spinner(title="Predicting each change"):
            return mo.Html(on_data.changes_table(on_data.changes(chosen), chosen.classes))

    if not predict_changes.value or network is None or not choice.of_tokens(chosen):
        _shown = mo.md("")
    else:
        try:
            _shown = _changes()
        except FirstguessError as _error:
            _shown = mo.Html(panels.message(str(_error)))
    _shown  # noqa: B018
    return


@app.cell(hide_code=True)
def _(mo):
    source = mo.ui.dropdown(["digits", "a file of yours"], value="digits", label="Data")
    upload = mo.ui.file(filetypes=[".npz"], label="Choose an .npz with x (points first)")
    go = mo.ui.run_button(label="Predict and measure on data")
    return go, source, upload


@app.cell(hide_code=True)
def _(go, mo, source, sys, upload):
    # in a browser alone there is no PyTorch
    mo.md("") if sys.platform == "emscripten" else mo.hstack(
        [mo.md("**On data**"), source, *([upload] if source.value != "digits" else []), go], justify="start", wrap=True
    )
    return


@app.cell(hide_code=True)
def _(FirstguessError, chosen, go, mo, network, panels, source, upload):
    def _on_data():
        import importlib

        on_data = importlib.import_module("firstguess.explore.on_data")
        if source.value == "digits":
            data = on_data.embedded()
        elif not upload.value:
            return mo.md("Choose a file first.")
        else:
            data = on_data.uploaded(upload.value[0].name, upload.value[0].contents)
        with mo.status.progress_bar(total=100, title="Predicting, then measuring", remove_on_exit=True) as bar:
            done = 0

            def step(part, whole):
                nonlocal done
                now = int(100 * part / max(whole, 1))
                if now > done:
                    bar.update(increment=now - done)
                done = now

            return mo.Html(on_data.table(on_data.beside(chosen, data, step)))

    if not go.value or network is None:
        _shown = mo.md("")
    else:
        try:
            _shown = _on_data()
        except FirstguessError as _error:
            _shown = mo.Html(panels.message(str(_error)))
    _shown  # noqa: B018
    return


@app.cell(hide_code=True)
def _(FirstguessError, chosen, mo, network, panels):
    def _code(of):
        try:
            return mo.ui.code_editor(of(), language="python", disabled=True, show_copy_button=True)
        except FirstguessError as error:
            return mo.Html(panels.message(str(error)))

    if network is None:
        _shown = mo.md("")
    else:
        _codes = {"Copy as Python": _code(lambda: chosen.python), "Copy as PyTorch": _code(lambda: chosen.pytorch)}
        _shown = mo.accordion(_codes, multiple=True)
    _shown  # noqa: B018
    return


if __name__ == "__main__":
    app.run()
