"""What bench/searchlm counts as operators that are of use."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from harness.declare import ROOT
from searchlm import conditions, table


def record(query, found, keywords=("b", "c"), relevant=("a",)):
    call = {"tool": "submit_query", "queries": [query], "shown": list(found), "payload": {"keywords_found": list(keywords)}}
    turn = {"kind": {"kind": "calls", "calls": [call]}}
    return {"episode": {"task": {"evidence": list(relevant)}, "turns": [turn], "score": {"parts": {"ndcg": 0.5}}}}


# An episode that an infrastructure fault ended before its first turn.
LOST = {"episode": {"task": {"evidence": ["a"]}, "turns": [], "score": None}}


def end(useful, operators=0.9, words=0.1, keywords=0.2):
    return {"share": useful, "useful": useful, "operators": operators, "words": words, "cut": words, "keywords": keywords}


def run(useful=0.5, start=0.3, **figures):
    return {"start": end(start), "end": end(useful, **figures), "ndcg": [0.3, 0.9], "course": [0.8, 0.6]}


class Searchlm(unittest.TestCase):
    def test_decoration_is_of_no_use(self):
        asked = []
        search = lambda queries: asked.extend(queries) or [["b", "a", *"cdefghij"] for _ in queries]
        records = [
            record("\"Vador Koda\" AND spouse", ["a"]),
            record("Vador Koda spouse AND Bapi", ["b", "a", *"cdefghijkl"]),
            record("Vador Koda spouse", ["a"]),
            {"episode": {"task": {"evidence": ["a"]}, "turns": [{"kind": {"kind": "invalid"}}]}},
        ]
        found = conditions.judged(records, search)
        self.assertEqual(asked, ["Vador Koda spouse", "Vador Koda spouse Bapi"])
        self.assertEqual((found["share"], found["useful"]), (0.5, 0.25), "of two queries with operators one is precise")
        # The first page counts, and as many of the words' results as the operators left.
        self.assertAlmostEqual(found["operators"], (1.0 + 0.1) / 2)
        self.assertAlmostEqual(found["words"], 0.1)
        self.assertAlmostEqual(found["cut"], (0.0 + 0.1) / 2)

    def test_judgments_go_before_evidence(self):
        judged = record("a AND b", ["a"])
        judged["episode"]["task"]["qrels"] = {"a": 1, "b": 1, "c": 0}
        self.assertEqual(conditions.written(judged)[3], {"a", "b"})

    def test_an_evaluation_that_was_stopped_goes_on(self):
        with tempfile.TemporaryDirectory() as scratch:
            bench, file = conditions.Bench("forage", scratch), Path(scratch, "held-out-end.jsonl")
            play = lambda *words: file.write_text("")
            for stopped in (False, True):
                file.unlink(missing_ok=True)
                if stopped:
                    file.with_suffix(".resume.json").write_text("{}")
                with mock.patch.object(conditions.Bench, "forage", side_effect=play) as forage:
                    self.assertEqual(bench.evaluated("policy", [], file), [])
                self.assertIs("--resume" in forage.call_args.args, stopped)

    def test_each_condition_is_trained_evaluated_and_searched_under_each_seed(self):
        with tempfile.TemporaryDirectory() as folder:
            scratch, calls = Path(folder), []

            def forage(bench, *arguments, log=None):
                """What the program would leave behind: nobody writes a query in the second step."""
                words = list(map(str, arguments))
                calls.append(words)
                out = Path(words[words.index("--out") + 1]) if "--out" in words else None
                if words[0] == "train":
                    (out / "policy").mkdir(parents=True)
                    (out / "metrics.jsonl").write_text('{"step": 0, "query/operator_frac": 0.8}\n{"step": 1}\n')
                elif words[0] == "eval":
                    out.write_text("".join(json.dumps(written) + "\n" for written in (record("a AND b", ["a"]), LOST)))
                return '{"id": "b"}\n{"id": "a"}\n' if words[0] == "search" else ""

            def main(*more):
                calls.clear()
                arguments = ["conditions.py", "forage", folder, "published", "rate", "--seeds", "1 2", *more]
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), \
                        mock.patch.object(sys, "argv", arguments), mock.patch.object(conditions.Bench, "forage", forage):
                    conditions.main()
                return printed.getvalue()

            printed = main()
            line = json.loads(printed.splitlines()[-1])
            self.assertEqual((line["bench"], line["held"], list(line["figures"])), ("searchlm", True, ["published", "rate"]))
            self.assertEqual(line["figures"]["rate"][1]["course"], [0.8, 0.4])
            self.assertEqual(line["figures"]["rate"][1]["end"]["words"], 0.5)
            of_rate = line["figures"]["rate"][1]
            self.assertEqual((of_rate["end"]["share"], of_rate["ndcg"]), (1.0, [0.5, 0.5]), "without what is lost")
            of = lambda kind: [words for words in calls if words[0] == kind]
            self.assertEqual([len(of(kind)) for kind in ("train", "eval", "search")], [4, 8, 8])
            for words in of("train"):
                name, seed = Path(words[words.index("--out") + 1]).name.split("-")
                world, policy = f"data.world.seed={1000000 + int(seed)}", f"policy.checkpoint={scratch}/start/policy"
                for setting in ("threads=1", f"seed={seed}", world, policy):
                    self.assertIn(setting, words)
                self.assertIs("grpo.update.optimizer.learning_rate=3e-5" in words, name == "rate")
            searched = [words[words.index("search") + 1] for words in of("search")]
            self.assertEqual(set(searched), {str(scratch / f"{name}-{seed}/index") for name in ("published", "rate") for seed in (1, 2)})
            self.assertEqual(main(), printed)
            self.assertEqual({words[0] for words in calls}, {"search"}, "what was made is not made again")

    def test_steps_without_a_query_have_a_row_all_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            metrics = {"ndcg": {"estimate": 0.3, "low": 0.2, "high": 0.4}, "ndcg_searchlm": {"estimate": 0.5}}
            evaluation = json.dumps({"greedy": {"metrics": metrics}})
            written = {"query/words_mean": 4.0, "query/operator_frac": 0.8, "query/complexity_mean": 2.0, "query/phrase_frac": 0.5}
            common = {"response/tokens_mean": 30.0, "group/zero_std_frac": 0.25}
            for seed in table.SEEDS:
                Path(folder, f"start-{seed}.json").write_text(evaluation)
                for reward, rows in (("v1", [written] + [{}] * 10), ("v2", [{}, written, {}])):
                    run = Path(folder, f"{reward}-{seed}")
                    run.mkdir()
                    (run / "evaluation.json").write_text(evaluation)
                    (run / "metrics.jsonl").write_text("".join(json.dumps(common | row) + "\n" for row in rows))
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), mock.patch.object(sys, "argv", ["table.py", folder]):
                table.main()
        lines = printed.getvalue().splitlines()
        self.assertIn("| v1 | 1 | 4.00 → – | 0.80 → – | 2.00 → – | 0.50 → – | 30.00 → 30.00 | 0.25 → 0.25 |", lines[3])
        self.assertIn("| v2 | 1 | – → 4.00 |", lines[6])
        self.assertIn("v1 1 0.80 0.00", lines)
        figures = json.loads(lines[-1])["figures"]
        self.assertEqual(figures["v1-1"]["operators"], 0.0)
        self.assertAlmostEqual(figures["v2-1"]["operators"], 0.8 / 3)

    def test_a_start_of_another_base_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            policy = Path(scratch, "start/policy")
            policy.mkdir(parents=True)
            (policy / "model.safetensors").touch()

            def start(base):
                command = [ROOT / "bench/searchlm/start.sh", "false", scratch]
                return subprocess.run(command, env=os.environ | {"BASE": base}, capture_output=True, text=True)

            self.assertEqual(start("").returncode, 0)
            self.assertIn("was made of builtin:quickstart, and BASE is larger", start("larger").stderr)
            Path(scratch, "base").write_text("larger\n")
            self.assertEqual((start("larger").returncode, start("").returncode), (0, 1))

    def test_what_is_kept(self):
        self.assertTrue(conditions.kept([run(), run(0.6)]))
        for runs in (
            [run()],
            [run(0.3), run(0.3)],
            [run(0.5, start=0.7), run(0.5, start=0.7)],
            [run(), run(operators=0.15)],
            [run(), run(keywords=0.9)],
            [run(), run(operators=None)],
        ):
            self.assertFalse(conditions.kept(runs))

    def test_the_table_and_the_file_of_conditions(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            conditions.table({"published": [run(), run(0.6)], "rate": [run(0.0, operators=None)] * 2})
        lines = printed.getvalue().splitlines()
        lead = "+0.80 [+0.80, +0.80]"
        self.assertEqual(lines[3], f"| published | 0.80 0.60 | 0.30 → 0.55 | 0.90 | {lead} | {lead} | +0.70 [+0.70, +0.70] | 0.30 → 0.90 | yes |")
        self.assertEqual(lines[4], "| rate | 0.80 0.60 | 0.30 → 0.00 |  |  |  |  | 0.30 → 0.90 | no |")
        known = conditions.conditions([])
        self.assertEqual(known["published"], [])
        self.assertTrue(all(word == "--set" for arguments in known.values() for word in arguments[::2]))
        with self.assertRaisesRegex(SystemExit, "has no sized"):
            conditions.conditions(["sized"])


if __name__ == "__main__":
    unittest.main()
