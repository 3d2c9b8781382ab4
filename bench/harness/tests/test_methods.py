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

    def test_a_run_of_other_arguments_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "kl-1")
            folder.mkdir()
            (folder / "minutes").write_text("1.0")
            (folder / "arguments").write_text("--set a=1")
            (folder / "config.toml").write_text("[grpo]\nsteps = 200\nprompts_per_step = 16\ngroup_size = 8\n")
            bench = run.Bench(argparse.Namespace(scratch=scratch, steps=200, budget=25600))
            with self.assertRaisesRegex(SystemExit, "other arguments"):
                bench.train("kl", ["--set", "a=2"], 1)

    def test_a_scratch_folder_is_of_one_task(self):
        with tempfile.TemporaryDirectory() as scratch:
            config = Path(scratch, "config.toml")
            config.write_text("seed = 1\n")
            given = {"scratch": scratch, "config": str(config)}
            task = "--set data.world.difficulty.hops=[0.0,1.0]"
            bench = run.Bench(argparse.Namespace(**given, task=task))
            self.assertEqual(bench.world(3)[:2], task.split())
            bench.claim()
            bench.claim()
            with self.assertRaisesRegex(SystemExit, "another config or TASK"):
                run.Bench(argparse.Namespace(**given, task="")).claim()

    def test_methods_must_play_as_many_episodes_each(self):
        for episodes, held in {(100, 90): True, (100, 89): False, (100, 101): False, (): False}.items():
            figures = {str(at): {"episodes": [spent]} for at, spent in enumerate(episodes)}
            self.assertIs(run.held(figures, 100), held, episodes)

    def test_methods_are_told_by_their_intervals(self):
        leads = {"dapo": None, "a": (0.1, 0.05, 0.15), "b": (-0.1, -0.2, -0.05), "c": (0.0, -0.1, 0.1), "d": (0.0, -0.1, 0.1)}
        figures = {name: {"lead": lead} for name, lead in leads.items()}
        self.assertEqual(run.told(figures, "dapo"), "ahead of dapo: a; behind dapo: b; neither shown: c, d")
