"""Which runs bench/methods takes for its own."""

import argparse
import tempfile
import unittest
from pathlib import Path

from methods import run


class Methods(unittest.TestCase):
    def test_a_run_of_another_length_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "dapo-1")
            folder.mkdir()
            (folder / "minutes").write_text("1.0")
            (folder / "config.toml").write_text("[grpo]\nsteps = 50\nprompts_per_step = 16\ngroup_size = 8\n")
            bench = run.Bench(argparse.Namespace(scratch=scratch, steps=200, budget=25600))
            with self.assertRaisesRegex(SystemExit, "trained for 50 steps and not for 200"):
                bench.train("dapo", [], 1)
