"""Write docs/gallery.md: figures with the code that draws them, then the ledger's, each with its command.

`python docs/tools/gallery.py` writes the page; with `--draw` it also redraws the pictures, by running the code that
the page shows.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

# title, what it shows, code that ends by saving `<name>.png`
FIGURES = [
    (
        "Bias by depth",
        "The drift ratio γ through the layers, predicted, for several places of a norm.",
        """
nets = {
    "no norm": fg.mlp(depth=20),
    "BatchNorm before ReLU": fg.mlp(depth=20, norm="batchnorm", placement="before"),
    "LayerNorm before ReLU": fg.mlp(depth=20, norm="layernorm", placement="before"),
    "LayerNorm after ReLU": fg.mlp(depth=20, norm="layernorm", placement="after"),
}
chart = fg.figures.gamma_by_depth_chart({name: fg.predict(net) for name, net in nets.items()})
fg.figures.save(chart, "gallery_depth.png")
""",
    ),
    (
        "The distribution of class shares",
        "How much of the data a class gets, over initializations: even, leaning, biased, deeply biased.",
        """
shares = [fg.predict(fg.mlp(depth=depth)) for depth in (1, 5, 20)]
chart = fg.figures.guesses_chart(*shares, labels=["1 layer", "5 layers", "20 layers"])
fg.figures.save(chart, "gallery_shares.png")
""",
    ),
    (
        "A phase diagram",
        "Where a deep tanh network is ordered, chaotic, biased or neutral; the edge of chaos and the neutrality line.",
        """
diagram = fg.phase_diagram("tanh", weight_vars=np.linspace(0.5, 5, 40), bias_vars=np.linspace(0, 0.4, 30))
fg.figures.save(fg.figures.phase_diagram_chart(diagram), "gallery_phases.png")
""",
    ),
    (
        "Three readings of one network",
        "Predicted for random data, predicted on these digits, and measured.",
        """
net, digits = fg.mlp(depth=5, norm="layernorm", placement="after"), fg.data.digits()
random, here = fg.predict(net, points=300), fg.predict(net, data=digits, points=300)
measured = fg.measure(net, digits, points=300, inits=100, width=200)
fg.figures.save(fg.figures.readings_chart(random, here, measured), "gallery_readings.png")
""",
    ),
    (
        "Logits of one network",
        "Why a class wins: the cloud of logits lies on one side of the boundary.",
        """
blob = fg.data.blob(400, 50)
plain = fg.measure("5 x [dense(weight_var=2) > relu] > dense(weight_var=2)", blob, inits=20, width=100)
even = fg.measure("5 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)", blob, inits=20, width=100)
chart = fg.figures.logits_chart({"LayerNorm after ReLU": even, "plain ReLU": plain})
fg.figures.save(chart, "gallery_logits.png")
""",
    ),
    (
        "Bias against gradients",
        "The frontier: where a network stands, what its parameter reaches, and what remedies cost.",
        """
fg.figures.save(fg.figures.frontier_chart(fg.frontier(fg.mlp(depth=20))), "gallery_frontier.png")
""",
    ),
    (
        "How long the bias lasts",
        "The share of the largest class in training, predicted from kernels: nothing is trained.",
        """
net = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
predicted = fg.predict_training(net, data=fg.data.two_blobs(75, 40), lr=1e-3, steps=150, width=300, start="biased")
fg.figures.save(fg.figures.training_chart(predicted), "gallery_training.png")
""",
    ),
]
PAPERS = {
    "igb": "Initial Guessing Bias",
    "norm": "Where You Place the Norm Matters (version 4: Pre-Norm vs Post-Norm)",
    "mf": "When Bias Meets Trainability",
    "beyond": "Beyond the papers",
}


def page() -> str:
    """The page's text."""
    parts = [
        "# Gallery\n\n<!-- Written by docs/tools/gallery.py; do not edit. -->\n\nEvery figure is one call of\n"
        "[`fg.figures`](api/figures.md); `.png` may be `.svg`, `.pdf` or a self-contained `.html`. A click shows a\n"
        "picture at full size.\n",
        "```python\nimport numpy as np\n\nimport firstguess as fg\n```\n",
    ]
    for title, shows, code in FIGURES:
        (name,) = re.findall(r'"(gallery_\w+\.png)"', code)
        parts.append(
            f"## {title}\n\n{shows}\n\n[![{title}](images/{name})](images/{name})\n\n```python\n{code.strip()}\n```\n"
        )
    parts.append(
        "## Figures of the ledger\n\nThe first figure of every item ([all of them](claims.md)): `firstguess\n"
        "reproduce` and its name compute it.\n"
        "Some take minutes, some need data sets: see `firstguess reproduce --list`.\n"
    )
    for paper, name in PAPERS.items():
        parts.append(f'### {name}\n\n<div class="gallery" markdown>\n')
        for path in sorted((DOCS / "claims" / "records").glob(f"{paper}_*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            if not record["charts"]:
                continue
            picture = f"claims/{path.stem}_{record['charts'][0]}"
            title, anchor = record["title"], record["id"].replace("/", "").replace(".", "")
            parts.append(
                f"[![{record['id']}]({picture})]({picture}) [{title}](claims/{paper}.md#{anchor}) `{record['id']}`\n"
            )
        parts.append("</div>\n")
    return "\n".join(parts)


def draw() -> None:
    """Run the code that the page shows, and keep the pictures."""
    import numpy as np
    from PIL import Image

    import firstguess as fg

    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            for _, _, code in FIGURES:
                exec(code, {"fg": fg, "np": np})
        finally:
            os.chdir(before)
        for picture in Path(folder).glob("*.png"):
            with Image.open(picture) as image:  # a fifth of the size, and looks the same
                image.convert("RGB").quantize(256).save(DOCS / "images" / picture.name, optimize=True)


if __name__ == "__main__":
    if "--draw" in sys.argv:
        draw()
    (DOCS / "gallery.md").write_text(page(), encoding="utf-8")
