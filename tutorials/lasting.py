import marimo

__generated_with = "0.25.2"
app = marimo.App()

with app.setup:
    import marimo as mo
    import torch
    from torch import nn

    import firstguess as fg


@app.cell
def _():
    mo.md("""
    # How long does the bias last?

    A network that starts with a favourite class loses it in training. After how many steps, and what happens to the
    others until then? Three ways to know: predict it, train many networks, or watch the one you train anyway.
    """)
    return


@app.cell
def _():
    mo.md("""
    ## Predict: nothing is trained

    Two classes of points that overlap a lot, two hidden layers, gradient descent. Only biased starts are of
    interest here: those that give 90 % of the points or more to one class.
    """)
    return


@app.cell
def _():
    net = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
    points = fg.data.two_blobs(75, 40)  # of each class 75 points, in 40 dimensions
    task = {"data": points, "lr": 1e-3, "steps": 150, "start": "biased"}
    widths = 200, 300
    foretold = {width: fg.predict_training(net, width=width, **task) for width in widths}
    print(foretold[300])
    return foretold, net, task, widths


@app.cell
def _(foretold):
    mo.md(f"""
    The bias is to be absorbed after {foretold[300].absorption.median:.0f} steps in the median network of width 300
    (after {foretold[200].absorption.median:.0f} at width 200: at one learning rate, narrow networks move slower). It
    moves {foretold[300].modes.ratio:.0f} times faster than what the labels teach: first the network stops preferring a
    class, then it learns. `trust` says whether to believe it: the prediction is that of wide networks whose weights
    hardly move.

    ## Train: many networks, for real

    The same task for sixteen networks of each width, all steps computed.
    """)
    return


@app.cell
def _(net, task, widths):
    real = {width: fg.train(net, optimizer="gd", inits=16, width=width, **task) for width in widths}
    print(real[300])
    return (real,)


@app.cell
def _(foretold, real):
    for width, trained in real.items():
        found = fg.compare(foretold[width], trained).absorption
        steps = f"predicted {found.predicted:.0f} steps, trained {found.trained:.0f}"
        print(f"width {width}: {steps}, ratio {found.ratio:.2f} (95 %: {found.low:.2f} to {found.high:.2f})")
    fg.figures.training_chart({"predicted": foretold[300], "trained": real[300]})
    return


@app.cell
def _(real):
    favoured, others = (real[300].accuracy[whose].mean[0] for whose in ("favoured", "others"))
    mo.md(f"""
    Theory is that of infinitely wide networks. Finite ones have a pace of their own, and sixteen of them a luck of
    their own, so take it for right to ten or twenty percent, not to the step. (This page began with width 200 alone,
    where the two are further apart, and went over to 300 where they looked better; so now it shows both.)

    Until then accuracy *by class* says more about the start than about learning: of the networks of width 300, the
    favoured class begins at {100 * favoured:.0f} % and falls, the other begins at {100 * others:.0f} % and rises.

    ## Watch: the training that you run anyway

    Your own loop, your own model: here digits, ten classes, SGD. A watch holds a few points back, looks at them now
    and then, and leaves no trace in the training.
    """)
    return


@app.cell
def _():
    digits = fg.data.digits()
    x, y = torch.tensor(digits.flat(), dtype=torch.float32), torch.tensor(digits.y)
    torch.manual_seed(0)
    layers = [nn.Linear(64, 200), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(200, 200), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(200, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    order = torch.Generator().manual_seed(1)

    with fg.Watch(model, (x, y), every=50) as watch:
        for step in range(400):
            watch.step(step)
            batch = torch.randint(0, len(x), (64,), generator=order)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    print(watch.result)
    fg.figures.watch_chart(watch.result)
    return (watch,)


@app.cell
def _(watch):
    watched = watch.result
    mo.md(f"""
    What it found: {watched.finding}. At the end {100 * watched.accuracy.mean[-1]:.0f} % of the held points were right.
    Scores by class that are taken before the bias is gone show the start. `watch.evaluating()` before a
    validation warns when it comes too early, and there are callbacks for Lightning and Transformers:
    [Training, watched](../watch.md).
    """)
    return (watched,)


if __name__ == "__main__":
    app.run()
