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
    task = {"data": points, "lr": 1e-3, "steps": 150, "width": 300, "start": "biased"}
    foretold = fg.predict_training(net, **task)
    print(foretold)
    return foretold, net, task


@app.cell
def _(foretold):
    mo.md(f"""
    The bias is to be absorbed after {foretold.absorption.median:.0f} steps in the median network. It moves
    {foretold.modes.ratio:.0f} times faster than what the labels teach: first the network stops preferring a class,
    then it learns. `trust` says whether to believe it: the prediction is that of wide networks whose weights hardly
    move.

    ## Train: many networks, for real

    The same task for sixteen networks of width 300, all steps computed.
    """)
    return


@app.cell
def _(net, task):
    real = fg.train(net, optimizer="gd", inits=16, **task)
    print(real)
    return (real,)


@app.cell
def _(foretold, real):
    agreement = fg.compare(foretold, real)
    print(agreement)
    fg.figures.training_chart({"predicted": foretold, "trained": real})
    return (agreement,)


@app.cell
def _(agreement, foretold, real):
    mo.md(f"""
    Predicted {foretold.absorption.median:.0f} steps, trained {real.absorption.median:.0f}: a prediction for
    infinitely wide networks, beside sixteen of width 300. Until then accuracy *by class* says more about the start
    than about learning: the favoured class begins at {real.accuracy["favoured"].mean[0]:.0%} and falls, the other
    begins at {real.accuracy["others"].mean[0]:.0%} and rises.

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
    learned = watched.accuracy.mean[int((watched.steps < watched.absorbed_at).sum())]  # at the next look
    mo.md(f"""
    This network began by giving {watched.largest.mean[0]:.0%} of the held points to one class, and that was over at
    step {watched.absorbed_at:.0f} of 400, when {learned:.0%} of them were right. Scores by class that are taken
    before that step show the start's bias. `watch.evaluating()` in front of a validation warns when it comes too
    early, and there are callbacks for Lightning and Transformers: [Training, watched](../watch.md).
    """)
    return learned, watched


if __name__ == "__main__":
    app.run()
