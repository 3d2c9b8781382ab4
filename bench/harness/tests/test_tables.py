"""Tables of the documents that a script computes, without measuring: they are what it prints."""

import re
import subprocess
import sys
import unittest

from harness.declare import ROOT

COMPUTED = {
    "docs/scale.md": (["scale.py", "--cache-gib", "8"], ["scale.py", "Qwen2.5-7B", "--card", "H200"]),
    "docs/gpu.md": (["roofline.py", "Qwen2.5-3B"],),
}


def rows(text):
    """The rows of tables, however their cells are padded."""
    return [re.sub(r"\s+", "", line) for line in text.splitlines() if line.startswith("|")]


class Tables(unittest.TestCase):
    def test_computed_tables_stand_in_the_documents(self):
        for page, scripts in COMPUTED.items():
            shown = "\n".join(rows((ROOT / page).read_text(encoding="utf-8")))
            for script, *arguments in scripts:
                command = [sys.executable, ROOT / "bench/gpu" / script, *arguments]
                printed = rows(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                self.assertGreater(len(printed), 5)
                self.assertIn("\n".join(printed), shown, f"{page} differs from what bench/gpu/{' '.join([script, *arguments])} prints")


if __name__ == "__main__":
    unittest.main()
