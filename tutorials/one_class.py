import marimo

__generated_with = "0.25.2"
app = marimo.App()

with app.setup:
    import marimo as mo
    import numpy as np
    import torch
    from torch import nn

    import firstguess as fg


@app.cell
def _():
    mo.md("""
    # My network predicts one class

    You build a classifier, look at its predictions before (or early in) training, and nearly all of them are the
    same class. Is that a bug, or is it how such networks start? What does it, what would change it, and does it
    matter? Here is the whole way on 1 797 small images of digits: look, explain, diagnose, fix, and check the fix
    by training.
    """)
    return


@app.cell
def _():
    digits = fg.data.digits()  # standardized
    x = torch.tensor(digits.flat(), dtype=torch.float32)
    y = torch.tensor(digits.y)

    def network(place: str, depth: int = 8, width: int = 100) -> nn.Sequential:
        """Eight layers with LayerNorm before or after ReLU."""
        layers: list[nn.Module] = []
        for k in range(depth):
            dense = nn.Linear(64 if k == 0 else width, width, bias=False)
            norm, relu = nn.LayerNorm(width), nn.ReLU()
            layers += [dense, norm, relu] if place == "before" else [dense, relu, norm]
        return nn.Sequential(*layers, nn.Linear(width, 10))

    return digits, network, x, y


@app.cell
def _():
    mo.md("""
    ## Look

    Ten untrained networks, LayerNorm before ReLU as most people write it. Which share of all images does each put
    into the class it likes best? An even guess would be 10 %.
    """)
    return


@app.cell
def _(network, x):
    models = []
    for seed in range(10):
        torch.manual_seed(seed)
        models.append(network("before"))
    with torch.no_grad():
        shares = [float(torch.bincount(m(x).argmax(1), minlength=10).max()) / len(x) for m in models]
    print("  ".join(f"{100 * share:.0f} %" for share in shares))
    return models, shares


@app.cell
def _(shares):
    mo.md(f"""
    From {100 * min(shares):.0f} to {100 * max(shares):.0f} %: every one of them has a favourite, and none has learned
    anything yet.

    ## Bug or bias?

    Take the one in the middle of the ten. `fg.explain_guess` looks at this very model, as it is now, and at fresh
    networks of the same architecture on the same data.
    """)
    return


@app.cell
def _(models, shares, x, y):
    typical = models[int(np.argsort(shares)[5])]
    why = fg.explain_guess(typical, (x[:500], y[:500]))
    print(why)
    return (why,)


@app.cell
def _(why):
    mo.md(f"""
    {100 * why.surprise:.0f} % of fresh networks are at least as one-sided as this one, and no fault (NaN, dead units,
    a head's bias, constant inputs) was seen. It is the architecture's own *initial guessing bias*.

    ## Diagnose

    Which layer does it, was it to be expected, and what would change it? A class or a factory is re-initialized as it
    is.
    """)
    return


@app.cell
def _(network, x, y):
    d = fg.diagnose(lambda: network("before"), (x, y), points=300, inits=32)
    print(d)
    return (d,)


@app.cell
def _(d):
    largest = d.measurement.guesses.expected_max()
    mo.md(f"""
    The verdict is *{d.verdict.title}*: on average {100 * largest:.0f} % of the images go to one class. The cause is
    {d.causes[0].words}: ReLU's mean is not 0, so all images are shifted alike, more with every layer, and LayerNorm
    before ReLU does not subtract that. Theory, which drew no network, expected as much. And there are
    remedies, each tried before it is named.

    ## Fix it, and check by training

    The first remedy that keeps the design is to move the norm after the activation. Does that help? Train four
    networks of each kind on 1 200 images with plain SGD, and look at the other 597: which share does the largest
    class get, how many are right, and how many of the worst class are right.
    """)
    return (largest,)


@app.cell
def _(network, x, y):
    def trained(model: nn.Module, looks: tuple[int, ...], lr: float = 0.05) -> list[tuple[float, float, float]]:
        """Largest share, accuracy and worst class's accuracy on held-out images, at some steps."""
        order, seen = torch.Generator().manual_seed(1), []
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for step in range(looks[-1] + 1):
            if step in looks:
                with torch.no_grad():
                    guess, true = model(x[1200:]).argmax(1), y[1200:]
                right = [float((guess[true == c] == c).float().mean()) for c in range(10)]
                share = float(torch.bincount(guess, minlength=10).max()) / len(guess)
                seen.append((share, float((guess == true).float().mean()), min(right)))
            batch = torch.randint(0, 1200, (64,), generator=order)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        return seen

    looks = (0, 5, 20, 50, 300)
    runs = {}
    for place in ("before", "after"):
        curves = []
        for start in range(4):
            torch.manual_seed(start)
            curves.append(trained(network(place), looks))
        runs[place] = np.array(curves)  # networks × steps × (share, accuracy, worst class)
        for at, (share, accuracy, worst) in zip(looks, runs[place].mean(0), strict=True):
            shown = f"largest share {share:.2f}  accuracy {accuracy:.2f}  worst class {worst:.2f}"
            print(f"norm {place:6}  step {at:3}  {shown}")
    return looks, runs


@app.cell
def _(runs):
    def of(place: str, look: int, what: int) -> str:
        """Mean and standard error over the four networks, in percent."""
        seen = 100 * runs[place][:, look, what]
        return f"{seen.mean():.0f} ± {seen.std(ddof=1) / 2:.0f} %"

    mo.md(f"""
    Mean and standard error of four networks each. At the start the largest share falls from {of("before", 0, 0)} to
    {of("after", 0, 0)}. After 20 steps {of("after", 2, 1)} of the held-out images are right instead of
    {of("before", 2, 1)}, and of the worst class {of("after", 2, 2)} instead of {of("before", 2, 2)}: whoever compares
    classes that early compares starts. After 300 steps they are nearly alike, {of("after", 4, 1)} and
    {of("before", 4, 1)}. Four networks are a look, not a proof; the [ledger](../claims.md) has more of them. An even
    start has a price of its own in networks this deep, gradients that grow going back.

    ## Keep it so

    A test in CI holds the new network to it ([A gate for CI](../ci.md)); it fails, with the cause, if somebody
    moves the norm back.
    """)
    return


@app.cell
def _(network, x):
    passed = fg.assert_even(lambda: network("after"), x[:300], max_share=0.5)
    try:
        fg.assert_even(lambda: network("before"), x[:300], max_share=0.5)
        refused = ""
    except fg.NotEven as error:
        refused = str(error)
    print(refused)
    return passed, refused


if __name__ == "__main__":
    app.run()
