"""What a chart shows: its own data, checked against the schema of Vega-Lite, and the words of its picture."""

from __future__ import annotations

import json
import re
from typing import Any

import vl_convert


def rows(chart: Any) -> list[dict[str, Any]]:
    """All data of a chart; `to_dict` validates it against the schema of Vega-Lite."""
    spec = chart.to_dict(validate=True)
    json.dumps(spec, allow_nan=False)  # browsers read no NaN
    return [row for values in spec["datasets"].values() for row in values]


def svg_text(chart: Any) -> str:
    """What the rendered figure says."""
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    assert "NaN" not in svg
    found = re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", " | ".join(found)))
