"""The last line of bench/retrieval: report.py WORK."""

import json
import sys
from pathlib import Path


def main():
    figures, held = {}, {}
    for part in ("bm25", "dense"):
        path = Path(sys.argv[1]) / f"{part}.json"
        if path.exists():
            found = json.loads(path.read_text())
            figures[part] = found
            held |= {f"{part}_{name}": value for name, value in found["held"].items()}
    print(json.dumps({"bench": "retrieval", "held": bool(held) and all(held.values()), "design": held, "figures": figures}))


if __name__ == "__main__":
    main()
