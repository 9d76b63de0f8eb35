"""Write tests/long_tests.txt from the durations of a whole run: what does not fit into the time of `make test`.

    pytest -n 2 --durations=0 --durations-min=0.005 -m 'not slow' > run.log
    python tests/tools/choose_quick.py run.log --seconds 400

The shortest tests are taken first, and all of tests/golden, until the processor seconds allowed are used up.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="what pytest printed, with durations")
    parser.add_argument("--seconds", type=float, default=400.0, help="processor seconds that `make test` may use")
    options = parser.parse_args()
    took: dict[str, float] = defaultdict(float)
    for seconds, test in re.findall(
        r"^ *([\d.]+)s (?:call|setup|teardown) +(\S+)", options.log.read_text("utf-8"), re.M
    ):
        took[test.partition("[")[0]] += float(seconds)
    if not took:
        raise SystemExit("no durations in that file: run pytest with --durations=0")
    left, long = options.seconds, list[str]()
    for test in sorted(took, key=lambda name: (not name.startswith("tests/golden"), took[name])):
        left -= took[test]
        if left < 0 and not test.startswith("tests/golden"):
            long.append(test)
    (HERE / "long_tests.txt").write_text("".join(f"{test}\n" for test in sorted(long)), encoding="utf-8")
    rest = sum(took[test] for test in long)
    print(f"{len(took) - len(long)} tests in {sum(took.values()) - rest:.0f} s, {len(long)} in {rest:.0f} s left")


if __name__ == "__main__":
    main()
