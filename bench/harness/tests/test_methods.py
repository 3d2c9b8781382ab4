"""Which runs bench/methods takes for its own, and what it makes of them."""

import argparse
import contextlib
import io
import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from methods import run


class Methods(unittest.TestCase):
    def test_a_run_of_another_length_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "dapo-1")
            folder.mkdir()
            (folder / "arguments").write_text("")
            (folder / "config.toml").write_text("[grpo]\nsteps = 50\nprompts_per_step = 16\ngroup_size = 8\n")
            bench = run.Bench(argparse.Namespace(forage="forage", scratch=scratch, steps=200, budget=25600))
            with self.assertRaisesRegex(SystemExit, "trained for 50 steps and not for 200"):
                bench.train("dapo", [], 1)

    def test_a_run_of_other_arguments_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "kl-1")
            folder.mkdir()
            (folder / "arguments").write_text("--set a=1")
            (folder / "config.toml").write_text("[grpo]\nsteps = 200\nprompts_per_step = 16\ngroup_size = 8\n")
            bench = run.Bench(argparse.Namespace(forage="forage", scratch=scratch, steps=200, budget=25600))
            with self.assertRaisesRegex(SystemExit, "other arguments"):
                bench.train("kl", ["--set", "a=2"], 1)

    def test_a_scratch_folder_is_of_one_task(self):
        with tempfile.TemporaryDirectory() as scratch:
            config = Path(scratch, "config.toml")
            config.write_text("seed = 1\n")
            given = {"forage": "forage", "scratch": scratch, "config": str(config)}
            task = "--set data.world.difficulty.hops=[0.0,1.0]"
            bench = run.Bench(argparse.Namespace(**given, task=task))
            self.assertEqual(bench.world(3)[:2], task.split())
            bench.claim()
            bench.claim()
            with self.assertRaisesRegex(SystemExit, "another config or TASK"):
                run.Bench(argparse.Namespace(**given, task="")).claim()

    def test_each_method_is_trained_under_each_seed_and_held_against_the_start_and_the_first(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch, config, calls = Path(folder), Path(folder, "config.toml"), []
            config.write_text("seed = 1\n")
            metric = "em"
            grpo = "[grpo]\nsteps = 100\nprompts_per_step = 16\ngroup_size = 8\n"

            def forage(bench, *arguments, log=None):
                """What the program would leave behind: with refills every step plays its questions twice."""
                words = list(map(str, arguments))
                calls.append(words)
                out = Path(words[words.index("--out") + 1]) if "--out" in words else None
                if words[0] == "collect":
                    out.write_text("")
                elif words[0] == "train" and out:
                    refilled = {"curriculum/refilled_groups": 16.0} if "grpo.refills=4" in words else {}
                    played = {} if "--rollouts" in words else {"time/rollout_s": 1.0}
                    rows = [{"step": step, "time/update_s": 0.5} | played | refilled for step in range(100)]
                    for row in rows[4::5] if played else []:
                        row["val/em"] = row["step"] / 100
                    for row in rows if played else []:
                        row["reward/mean"] = row["step"]
                    for step in range(2, 101, 2) if refilled else [100]:
                        (out / f"checkpoints/step-{step:06}/model").mkdir(parents=True)
                    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
                    (out / "config.toml").write_text(grpo)
                elif words[0] == "eval":
                    for file in (out, out.with_suffix(".sampled.jsonl")):
                        file.write_text("")
                elif words[0] == "compare":
                    scores = [{"start-1": 0.25, "start-2": 0.25, "dapo-1": 0.5, "dapo-2": 0.5}.get(Path(file).name.split(".")[0], 0.75)
                              for file in words[1:3]]
                    difference = dict.fromkeys(("estimate", "low", "high"), scores[1] - scores[0])
                    found = {metric: {"a": scores[0], "b": scores[1], "difference": difference}}
                    known = Path(words[2]).name.startswith(("dapo-1", "dapo-2"))
                    return json.dumps({"metrics": found | ({"searches": {"b": 1.5}} if known else {})})
                return grpo

            def main(*methods, ends="^0$"):
                calls.clear()
                arguments = ["run.py", "--forage", "f", "--config", str(config), "--scratch", folder, "--steps", "100", "--seeds", "2"]
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), \
                        mock.patch.object(sys, "argv", [*arguments, "--methods", *methods]), \
                        mock.patch.object(run.Bench, "forage", forage), self.assertRaises(SystemExit) as ended:
                    run.main()
                self.assertRegex(str(ended.exception.code), ends)
                return printed.getvalue()

            both = ("dapo", "dapo-refills")
            printed = main(*both)
            self.assertIn("| dapo | 12800 | 100 | 94.500 | 1.50 | 0.500 | 0.250 | 0.500 | +0.250 [+0.250, +0.250] |  | 880 | 2.5 |", printed)
            gain, lead = "+0.500 [+0.500, +0.500]", "+0.250 [+0.250, +0.250]"
            self.assertIn(f"| dapo-refills | 12800 | 50 | 44.500 |  | 0.750 | 0.250 | 0.750 | {gain} | {lead} | – | 1.2 |", printed)
            line = json.loads(printed.splitlines()[-1])
            self.assertEqual((line["bench"], line["held"], line["seeds"], line["steps"]), ("methods", True, 2, 100))
            self.assertEqual(line["figures"]["dapo-refills"]["episodes"], [12800, 12800])
            of = lambda kind: [words for words in calls if words[0] == kind and "--dry-run" not in words]
            self.assertEqual([len(of(kind)) for kind in ("train", "eval", "compare")], [4, 6, 11])
            for words in of("train"):
                self.assertIn("threads=1", words)
                self.assertIn(f"data.world.seed={1000000 + int(words[words.index('--out') + 1][-1])}", words)
            self.assertEqual([path.name for path in (scratch / "dapo-refills-1/checkpoints").iterdir()], ["step-000050"])
            self.assertEqual(main(*both), printed)
            self.assertEqual({words[0] for words in calls if "--dry-run" not in words}, {"compare"}, "what was made is not made again")
            printed = main("dapo", "a_lol", "lipo")
            self.assertIn(f"| lipo | 12800 | 100 |  |  | 0.750 | 0.250 | 0.750 | {gain} | {lead} | – | 0.8 |", printed)
            recorded = [words for words in calls if words[0] == "collect"]
            self.assertEqual(len(recorded), 2, "one for each seed")
            for words in recorded:
                self.assertEqual(words[words.index("--samples") + 1], "8")
                self.assertEqual(words[words.index("--questions") + 1], "1600")
            for words in of("train"):
                seed = words[words.index("--out") + 1][-1]
                self.assertEqual(words[words.index("--rollouts") + 1], str(scratch / f"recorded-{seed}.jsonl"))
            metric = "ndcg"
            shutil.rmtree(scratch / "dapo-1")
            main(*both, ends=r"no exact match \(ndcg\); name one whose episodes end in answers")
            self.assertNotIn("train", {words[0] for words in calls if "--dry-run" not in words})

    def test_questions_are_counted_to_a_level(self):
        steps = [{}, {"val/em": 0.4}, {}, {"val/em": 0.5}, {"val/em": 0.3}]
        self.assertEqual(run.asked(steps, [16, 16, 32, 16, 16], 0.5), 80)
        self.assertIsNone(run.asked(steps[:3], [16] * 3, 0.5))
        self.assertEqual([run.reached(counts) for counts in ([80, 100], [80, None], [None, None])], ["90", "80 (1 of 2)", "–"])

    def test_methods_must_play_as_many_episodes_each(self):
        for episodes, held in {(100, 90): True, (100, 89): False, (100, 101): False, (): False}.items():
            figures = {str(at): {"episodes": [spent]} for at, spent in enumerate(episodes)}
            self.assertIs(run.held(figures, 100), held, episodes)

    def test_methods_are_told_by_their_intervals(self):
        leads = {"dapo": None, "a": (0.1, 0.05, 0.15), "b": (-0.1, -0.2, -0.05), "c": (0.0, -0.1, 0.1), "d": (0.0, -0.1, 0.1)}
        figures = {name: {"lead": lead} for name, lead in leads.items()}
        self.assertEqual(run.told(figures, "dapo"), "ahead of dapo: a; behind dapo: b; neither shown: c, d")
