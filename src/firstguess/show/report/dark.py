"""Charts in the dark: the same picture, its colours exchanged by the style sheet: prints and files stay light."""

from __future__ import annotations

from firstguess.show.charts import theme

CARD = "#1d2025"

# By the colour a chart is made with. Okabe and Ito's colours, lighter; fills darker; what was white is the card.
DARK = {
    "white": CARD,
    "#FFFFFF": CARD,
    theme.INK: "#e8e8e8",
    theme.SOFT: "#b4b4b4",
    theme.FAINT: "#3a3e44",
    theme.PALE_BLUE: "#31617f",
    "#999999": "#777d85",
    "#000000": "#e8e8e8",
    "#000": "#e8e8e8",
    "black": "#e8e8e8",
    theme.PALETTE[0]: "#4aa9e3",
    theme.PALETTE[1]: "#f0883e",
    theme.PALETTE[2]: "#2fc296",
    theme.PALETTE[3]: "#dd93ba",
    theme.PALETTE[4]: "#f0b436",
    theme.PALETTE[5]: "#7cc6f0",
    theme.PALETTE[6]: "#c4c4c4",
    # words for γ
    "#FBF9F4": "#23241f",
    "#F7F3EA": "#292820",
    "#EFE6D3": "#363122",
    "#BDB08E": "#6f6648",
    "#7A6A3F": "#cbb980",
    # ranks of many classes: there the darkest is the largest, here the brightest
    "#0B4F7A": "#7cc6f0",
    "#4A9CCB": "#3b86b3",
    "#A9D0E8": "#2a536d",
}


def dark_style() -> str:
    """Rules that beat the colours written into a picture; for screens only."""
    rules = [
        f'.chart [{what}="{light}"]{{{what}:{dark}}}' for light, dark in DARK.items() for what in ("fill", "stroke")
    ]
    return f"\n@media screen and (prefers-color-scheme: dark) {{\n{chr(10).join(rules)}\n}}\n"
