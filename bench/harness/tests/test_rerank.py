"""What bench/rerank trains and tests on, and what its line of JSON says of the aims."""

import argparse
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from rerank import run

TEST = {"q": ("Does  zinc help?", {"a": 1, "b": 1})}


def figures(**changes):
    """All figures of two corpora at their aims."""
    plain = {name: least for name, (least, _) in run.AIMS.items()} | changes
    return {f"{corpus}/{name}": value for corpus in ("one", "two") for name, value in plain.items()}


class Questions(unittest.TestCase):
    def test_training_shares_neither_words_nor_passages_with_the_test(self):
        train = {
            "words": ("does zinc help?", {"c": 1}),
            "passage": ("What does iron do?", {"c": 1, "b": 1}),
            "apart": ("What does lead do?", {"c": 1}),
        }
        self.assertEqual(set(run.disjoint(train, TEST)), {"apart"})

    def test_what_no_order_can_win_teaches_nothing(self):
        train = {"found": ("?", {"a": 1}), "lost": ("??", {"z": 1}), "nothing": ("???", {"a": 1})}
        self.assertEqual(set(run.teachable(train, {"found": ["b", "a"], "lost": ["b"]})), {"found"})

    def test_shuffled_labels_are_drawn_among_the_candidates(self):
        shown = [f"p{place}" for place in range(10)]
        train = {f"q{number}": (f"{number}?", {"p0": 2, "p1": 1, "far": 1}) for number in range(50)}
        candidates = dict.fromkeys(train, shown)
        found = run.shuffled(train, candidates, 1)
        self.assertEqual(found, run.shuffled(train, candidates, 1))
        self.assertNotEqual(found, run.shuffled(train, candidates, 2))
        for name, (text, grades) in found.items():
            self.assertEqual((text, grades["far"], len(grades)), (train[name][0], 1, 3))
            self.assertEqual(sorted(grades[passage] for passage in grades if passage != "far"), [1, 2])
            self.assertLessEqual(set(grades) - {"far"}, set(shown))
        # By chance a fifth of two in ten is the same.
        kept = sum("p0" in grades for _, grades in found.values())
        self.assertTrue(0 < kept < 30, kept)

    def test_some_are_drawn_and_no_more_than_there_are(self):
        questions = {f"q{number}": ("?", {}) for number in range(20)}
        self.assertEqual(len(run.some(questions, 5, 1)), 5)
        self.assertEqual(run.some(questions, 5, 1), run.some(questions, 5, 1))
        self.assertEqual(run.some(questions, 99, 1), questions)

    def test_both_corpora_are_read_and_missing_files_named(self):
        data = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.assertEqual(len(run.missing(data)), 6)

        def write(path, *lines):
            (data / path).parent.mkdir(parents=True, exist_ok=True)
            (data / path).write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))

        write("scifact/corpus.jsonl")
        write("scifact/queries.test.jsonl", {"_id": "1", "text": "Zinc helps."})
        write("scifact/qrels.test.trec", "1 0 31 1", "1 0 32 1")
        write("scifact/claims_train.jsonl", {"id": 1, "claim": "Iron helps.", "evidence": {}, "cited_doc_ids": [33]})
        expected = {"1": ("Zinc helps.", {"31": 1, "32": 1})}, {"train-1": ("Iron helps.", {"33": 1})}
        self.assertEqual(run.scifact(data / "scifact"), expected)
        write("multihop/hotpotqa/corpus.jsonl")
        rows = [{"_id": split, "text": f"{split}?", "gold": ["h1", "h2"], "split": split} for split in ("dev", "train", "train?")]
        write("multihop/hotpotqa/questions.jsonl", *rows)
        test, train = run.hotpotqa(data / "multihop/hotpotqa")
        self.assertEqual((set(test), set(train)), ({"dev"}, {"train", "train?"}))
        self.assertEqual(test["dev"], ("dev?", {"h1": 1, "h2": 1}))
        self.assertEqual(run.missing(data), [])

    def test_questions_are_written_as_a_folder_of_beir(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        run.write(folder, train={"t": ("Größe?", {"c": 2})}, test=TEST)
        queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assertEqual(queries, [{"_id": "t", "text": "Größe?"}, {"_id": "q", "text": "Does  zinc help?"}])
        self.assertEqual((folder / "qrels/train.tsv").read_text(), "query-id\tcorpus-id\tscore\nt\tc\t2\n")
        self.assertEqual((folder / "qrels/test.tsv").read_text().splitlines()[1:], ["q\ta\t1", "q\tb\t1"])


class Held(unittest.TestCase):
    def test_each_aim_on_each_corpus_is_needed(self):
        self.assertTrue(run.held(figures()))
        for name in run.AIMS:
            for corpus in ("one", "two"):
                found = figures()
                found[f"{corpus}/{name}"] -= 1e-6
                self.assertFalse(run.held(found), f"{corpus}/{name}")

    def test_a_rehearsal_is_small_and_has_files_of_its_own(self):
        given = ["--forage", "forage", "--data", "data", "--scratch", "scratch"]
        full, small = run.arguments(given), run.arguments([*given, "--rehearse"])
        self.assertEqual((full.test, small.test, full.steps, small.steps), (300, 12, 100, 2))
        self.assertNotEqual(full.scratch, small.scratch)
        self.assertEqual(run.arguments([*given, "--steps", "7"]).steps, 7)

    def test_a_scratch_folder_is_of_one_encoder_and_one_config(self):
        scratch = Path(self.enterContext(tempfile.TemporaryDirectory())) / "sizes"
        given = argparse.Namespace(scratch=scratch, data=Path("/data"), encoder=None)
        asked = lambda **changes: run.claim(argparse.Namespace(**vars(given) | changes))
        asked()
        # Its row may be added, and left out again.
        asked(encoder=Path("/one"))
        asked()
        with self.assertRaisesRegex(SystemExit, "of another encoder; give another"):
            asked(encoder=Path("/two"))
        other = scratch / "config.toml"
        other.write_text("seed = 2\n")
        with mock.patch.object(run, "CONFIG", other), self.assertRaisesRegex(SystemExit, "of another config, data folder;"):
            asked(data=Path("/else"))

    def test_a_ranker_without_figures_has_no_row(self):
        found = {"scifact/questions": 2, "scifact/train": 3}
        for ranker in run.RANKERS:
            found[f"scifact/{ranker}"] = 0.5
        names = [*run.COMPARED, *(f"{ranker} after bm25" for ranker in run.RANKERS)]
        found |= {f"scifact/{name}/{part}": 0.25 for name in names for part in ("estimate", "low", "high")}
        self.assertIn("| cross-encoder, trained on the same questions | 0.5000 | +0.250 [+0.250, +0.250] |", run.table("scifact", found))
        del found["scifact/cross-encoder"]
        self.assertNotIn("cross-encoder", run.table("scifact", found))


if __name__ == "__main__":
    unittest.main()
