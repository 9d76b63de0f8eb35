import marimo

__generated_with = "0.25.2"
app = marimo.App()

with app.setup:
    import marimo as mo

    import firstguess as fg


@app.cell
def _():
    mo.md("""
    # Which norm, and where

    BatchNorm, LayerNorm or RMSNorm, before the activation or after it: at the start of training this decides
    whether a network has a favourite class. Three steps: predict it for random data, predict and measure it on
    yours, and see what it costs.

    ## Predict: no weight is drawn

    The drift ratio γ of the output says how strongly networks prefer a class: at 0 guesses are even, above 1
    networks favour one class, above 9.5 most data go to one. Here is γ after 1, 5 and 20 layers of ReLU.
    """)
    return


@app.cell
def _():
    kinds = [(None, "before"), *[(n, p) for n in ("batchnorm", "layernorm", "rmsnorm") for p in ("before", "after")]]
    gamma = {}
    for norm, place in kinds:
        for depth in (1, 5, 20):
            net = fg.mlp(depth=depth, activation="relu", norm=norm, placement=place, classes=10)
            gamma[norm, place, depth] = fg.predict(net).gamma[-1]
        row = "  ".join(f"{gamma[norm, place, depth]:6.3f}" for depth in (1, 5, 20))
        print(f"{f'{norm} {place}' if norm else 'no norm':18} {row}")
    return gamma, kinds


@app.cell
def _():
    mo.md("""
    Three kinds of answers:

    - **BatchNorm or LayerNorm after the activation**: γ = 0. They subtract the mean, and the mean is where bias
      comes from.
    - **BatchNorm before it**: γ of a single layer, at any depth.
    - **LayerNorm or RMSNorm before it, and RMSNorm after it**: as without a norm, more with every layer. RMSNorm
      subtracts no mean, wherever it stands.

    An odd activation (tanh) has γ = 0 in all of them. GELU is between: `fg.mlp(activation="gelu")`.
    """)
    return


@app.cell
def _():
    places = {
        "no norm": fg.predict(fg.mlp(depth=20)),
        "BatchNorm before": fg.predict(fg.mlp(depth=20, norm="batchnorm", placement="before")),
        "LayerNorm before": fg.predict(fg.mlp(depth=20, norm="layernorm", placement="before")),
        "LayerNorm after": fg.predict(fg.mlp(depth=20, norm="layernorm", placement="after")),
    }
    fg.figures.gamma_by_depth_chart(places)
    return


@app.cell
def _():
    mo.md("""
    ## On your data: predict and measure

    Random data have nothing in common; real images have, and norms deal with it differently. Digits, five layers,
    400 images: the average share of the largest of ten classes, predicted on these images for wide networks, and
    measured in 40 networks of width 200.
    """)
    return


@app.cell
def _(kinds):
    digits = fg.data.digits()
    largest = {}
    for kind in kinds:
        described = fg.mlp(depth=5, norm=kind[0], placement=kind[1], classes=10)
        foretold = fg.predict(described, data=digits, points=400).guesses.expected_max()
        measured = fg.measure(described, digits, points=400, inits=40, width=200)
        low, high = measured.guesses.interval("largest")
        largest[kind] = foretold, measured.guesses.expected_max(), low, high
        name = f"{kind[0]} {kind[1]}" if kind[0] else "no norm"
        print(f"{name:18} predicted {foretold:.2f}   measured {largest[kind][1]:.2f}  (95 %: {low:.2f} to {high:.2f})")
    return digits, largest


@app.cell
def _(largest):
    mo.md(f"""
    Where random data are biased, so are digits. But LayerNorm after the activation is not even here:
    {100 * largest["layernorm", "after"][1]:.0f} % go to the largest class, and with BatchNorm there
    {100 * largest["batchnorm", "after"][1]:.0f} % (an even split is 10 %). (The four that are alike are measured with
    the same random numbers, so they are off by the same luck.) LayerNorm subtracts the mean over the *nodes of
    one image*; what all images share, it leaves. BatchNorm subtracts the mean over the *images*. Data that are
    centred to begin with help: `fg.data_bias` says what yours bring.

    ## What it costs: the frontier

    An even start is not free in a deep network. Bias and gradients are tied: (1 + γ) · g = P, where g is the factor
    on the mean square of gradients from the last layer to the first, and P how nonlinear the network is.
    """)
    return


@app.cell
def _():
    f = fg.frontier(fg.mlp(depth=20))
    print(f)
    fg.figures.frontier_chart(f)
    return (f,)


@app.cell
def _(f):
    after = next(mark for mark in f.remedies if mark.name.startswith("LayerNorm after"))
    mo.md(f"""
    LayerNorm after the activation of 20 layers has γ = 0, but gradients that grow {after.gradients:.0f}-fold
    going back, in mean square. A tuned slope of the activation reaches any γ from {f.reachable[0]:.0f} to
    {f.reachable[1]:.0f} at gradients that keep their size. What training says about it is in the
    [ledger](../claims.md):

    - **One to five layers:** a norm after the activation starts even, and classes are learned together from the
      first step ([norm/fig4](../claims/norm.md#normfig4)).
    - **Twenty plain layers:** LayerNorm after the activation starts even and learns no sooner than without a norm.
      A tuned slope, or a tuned residual form, does ([beyond/repair](../claims/beyond.md#beyondrepair)). The head's bias
      can be subtracted for nothing (`fg.repair`).
    - **ResNets:** in small stand-ins, moving BatchNorm behind ReLU made training slower
      ([norm/fig5](../claims/norm.md#normfig5)).
    - **RMSNorm:** do not count on it against bias. In transformers the question is another one
      ([Transformers](../transformers.md)).
    """)
    return (after,)


if __name__ == "__main__":
    app.run()
