"""Trains and evaluates the rankers of bench/rerank/run.sh and prints its tables."""

import argparse
import json
import random
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("config.toml")
CANDIDATES = tomllib.loads(CONFIG.read_text())["environment"]["settings"]["candidates"]
SEED = 1
# Tokens of the policy's window: the longest prompt has some 1,400.
WINDOW = 2048

# Name, folder in the data folder, and the files that are read of it.
CORPORA = {
    "scifact": ("SciFact", "scifact", ("corpus.jsonl", "queries.test.jsonl", "qrels.test.trec", "claims_train.jsonl")),
    "hotpotqa": ("HotpotQA", "multihop/hotpotqa", ("corpus.jsonl", "questions.jsonl")),
}
# Most test and training questions, steps of GRPO, and of the form of an answer demonstrations per question and passes over them.
FULL = {"test": 300, "train": 600, "steps": 100, "demonstrations": 1, "epochs": 3}
REHEARSAL = {"test": 12, "train": 24, "steps": 2, "demonstrations": 1, "epochs": 1}

# What is trained or asked: its row in the tables.
RANKERS = {
    "random": "random order",
    "bm25": "BM25, the first stage",
    "start": "policy, before GRPO",
    "shuffled": "policy, after GRPO on shuffled labels",
    "trained": "policy, after GRPO",
    "cross-encoder": "cross-encoder, trained on the same questions",
    "oracle": "oracle",
}
# Differences of rankers: of the second to the first.
COMPARED = {
    "gain": ("start", "trained"),
    "twin": ("start", "shuffled"),
    "lead": ("shuffled", "trained"),
    "over": ("bm25", "trained"),
    "encoder": ("bm25", "cross-encoder"),
}
# Figures that are the first ranker's NDCG less the second's.
BOUNDS = {"headroom": ("oracle", "bm25"), "floor": ("bm25", "random")}
# Figures of each corpus, the least that they are to be, and what that says.
AIMS = {
    "headroom": (0.001, "NDCG@10 of the oracle less that of BM25"),
    "floor": (0.001, "NDCG@10 of BM25 less that of a random order"),
    "gain/low": (0.001, "gain of GRPO in NDCG@10, low end of its 95 % interval"),
    "lead/low": (0.001, "lead over the twin on shuffled labels, low end of its 95 % interval"),
}


def rows(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scifact(folder):
    """Test and training questions, each by its id: its text and the grades of passages. The claims of the training set cite abstracts."""
    test = {row["_id"]: (row["text"], {}) for row in rows(folder / "queries.test.jsonl")}
    for line in (folder / "qrels.test.trec").read_text().splitlines():
        query, _, passage, grade = line.split()
        test[query][1][passage] = int(grade)
    cited = lambda row: {str(passage): 1 for passage in row["cited_doc_ids"]}
    train = {f"train-{row['id']}": (row["claim"], cited(row)) for row in rows(folder / "claims_train.jsonl")}
    return test, train


def hotpotqa(folder):
    """As `scifact`: the test questions are those of the published development set."""
    found = {True: {}, False: {}}
    for row in rows(folder / "questions.jsonl"):
        found[row["split"] == "dev"][row["_id"]] = (row["text"], {passage: 1 for passage in row["gold"]})
    return found[True], found[False]


READ = {"scifact": scifact, "hotpotqa": hotpotqa}


def disjoint(train, test):
    """The training questions that share neither words nor a relevant passage with a test question."""
    plain = lambda text: " ".join(text.lower().split())
    asked = {plain(text) for text, _ in test.values()}
    relevant = {passage for _, grades in test.values() for passage in grades}
    return {name: (text, grades) for name, (text, grades) in train.items() if plain(text) not in asked and not relevant & set(grades)}


def teachable(train, candidates):
    """The training questions that have a relevant passage among their candidates: the others reward every order alike."""
    return {name: row for name, row in train.items() if set(row[1]) & set(candidates.get(name, ()))}


def shuffled(train, candidates, seed):
    """The same questions with other labels: as many candidates of each are relevant as before, but which is drawn. Relevant passages that
    are not candidates stay: no order finds them either way."""
    found = {}
    for name, (text, grades) in train.items():
        shown = candidates[name]
        inside = [grade for passage, grade in grades.items() if passage in shown]
        drawn = random.Random(f"{seed} {name}").sample(sorted(shown), len(inside))
        kept = {passage: grade for passage, grade in grades.items() if passage not in shown}
        found[name] = (text, kept | dict(zip(drawn, inside)))
    return found


def some(questions, most, seed):
    """At most so many of the questions, drawn."""
    chosen = random.Random(seed).sample(sorted(questions), min(most, len(questions)))
    return {name: questions[name] for name in chosen}


def write(folder, **splits):
    """A BEIR folder of questions without a corpus."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with open(folder / "queries.jsonl", "w", encoding="utf-8") as queries:
        for split, questions in splits.items():
            with open(folder / f"qrels/{split}.tsv", "w", encoding="utf-8") as judged:
                judged.write("query-id\tcorpus-id\tscore\n")
                for name, (text, grades) in questions.items():
                    queries.write(json.dumps({"_id": name, "text": text}, ensure_ascii=False) + "\n")
                    judged.writelines(f"{name}\t{passage}\t{grade}\n" for passage, grade in grades.items())


def held(figures):
    """Whether every aim is reached on every corpus."""
    corpora = {name.split("/", 1)[0] for name in figures}
    return all(figures[f"{corpus}/{name}"] >= least for corpus in corpora for name, (least, _) in AIMS.items())


def table(name, figures):
    """The table of a corpus; rankers without figures have no row."""
    at = lambda *parts: figures["/".join((name, *parts))]
    cell = lambda kind: "{:+.3f} [{:+.3f}, {:+.3f}]".format(*(at(kind, part) for part in ("estimate", "low", "high")))
    lines = [
        f"{CORPORA[name][0]}: {at('questions')} test questions, {at('train')} training questions, the first {CANDIDATES} hits of BM25",
        "| ranker | NDCG@10 | after BM25 |",
        "|---|---|---|",
    ]
    for ranker, words in RANKERS.items():
        if f"{name}/{ranker}" in figures:
            after = "" if ranker == "bm25" else cell(f"{ranker} after bm25")
            lines.append(f"| {words} | {at(ranker):.4f} | {after} |")
    lines.append(f"gain of GRPO {cell('gain')}, on shuffled labels {cell('twin')}; lead over shuffled labels {cell('lead')}")
    return "\n".join(lines)


class Bench:
    def __init__(self, given, name):
        self.given, self.name = given, name
        self.data = given.data / CORPORA[name][1]
        self.scratch = given.scratch / name
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.faults = 0

    def forage(self, *arguments):
        """What a command prints; its errors go to a file."""
        command = [str(self.given.forage), *map(str, arguments)]
        log = self.scratch / "commands.log"
        with open(log, "a") as errors:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}: exit code {done.returncode}; {log} ends with\n{log.read_text()[-2000:]}")
        return done.stdout

    def prepare(self):
        """The index, and the questions as BEIR folders: `questions` as they are, `shuffled` with other labels of the training questions,
        and `form`, the training questions to be answered by lot."""
        self.index = self.scratch / "index"
        if not (self.index / "manifest.json").exists():
            shutil.rmtree(self.index, ignore_errors=True)
            self.forage("index", "build", "--corpus", self.data / "corpus.jsonl", "--format", "beir", "--out", self.index)
        test, train = READ[self.name](self.data)
        self.test = some(test, self.given.test, SEED)
        train = disjoint(train, test)
        write(self.scratch / "all", train=train)
        ranked = self.scratch / "train.run"
        self.retrieve(self.scratch / "all", "train", "--run", ranked)
        candidates = {}
        for line in ranked.read_text().splitlines():
            query, _, passage, *_ = line.split()
            candidates.setdefault(query, []).append(passage)
        self.train = some(teachable(train, candidates), self.given.train, SEED)
        if not self.test or not self.train:
            sys.exit(f"{self.data} has {len(self.test)} test and {len(self.train)} training questions that can be used")
        write(self.scratch / "questions", train=self.train, test=self.test)
        write(self.scratch / "shuffled", train=shuffled(self.train, candidates, SEED))
        write(self.scratch / "form", test=self.train)

    def retrieve(self, folder, split, *more):
        """BM25's metrics on a split."""
        judged = ("--queries", folder / "queries.jsonl", "--qrels", folder / f"qrels/{split}.tsv")
        return json.loads(self.forage("eval", "retrieval", "--index", self.index, *judged, "-k", CANDIDATES, "--json", *more))

    def config(self, name, train, test):
        """The config with these folders of questions."""
        files = {"index": self.index, "train": self.scratch / train, "test": self.scratch / test}
        files = "".join(f"{key} = {json.dumps(str(path.resolve()))}\n" for key, path in files.items())
        path = self.scratch / f"{name}.toml"
        path.write_text(f"{CONFIG.read_text()}\n[data.files]\n{files}")
        return path

    def evaluate(self, config, policy, path, *more):
        """Plays the test questions greedily into a file, on from where an evaluation into it was stopped."""
        again = ["--resume"] if path.with_suffix(".resume.json").exists() else []
        return self.forage("eval", config, "--policy", policy, "--samples", 0, "--out", path, *again, *more)

    def episodes(self, ranker, policy, *more):
        """The greedy episodes of a policy on the test questions, with their summary."""
        path = self.scratch / f"{ranker}.jsonl"
        summary = path.with_suffix(".summary")
        if not summary.exists():
            config = self.config("questions", "questions", "questions")
            found = self.evaluate(config, policy, path, "--json", *more)
            summary.write_text(found)
        found = json.loads(summary.read_text())["greedy"]
        self.faults += found["infra"]
        return found["metrics"]["ndcg"]["estimate"]

    def start(self):
        """The built-in policy with a longer window, after it has learned the form of an answer from random orders."""
        base, out = self.scratch / "base", self.scratch / "start"
        if (out / "policy/model.safetensors").exists():
            return out / "policy"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(ROOT / "configs/quickstart", base, dirs_exist_ok=True)
        shape = json.loads((base / "config.json").read_text())
        (base / "config.json").write_text(json.dumps(shape | {"max_position_embeddings": WINDOW}))
        config, shown = self.config("form", "questions", "form"), self.scratch / "form.jsonl"
        with open(shown, "w", encoding="utf-8") as lines:
            for seed in range(1, self.given.demonstrations + 1):
                path = self.scratch / f"form-{seed}.jsonl"
                self.evaluate(config, "random", path, "--tokens-of", base, "--seed", seed)
                lines.write(path.read_text(encoding="utf-8"))
        how = ("--epochs", self.given.epochs, "--batch", 16, "--learning-rate", "1e-3", "--skip-long")
        self.forage("sft", shown, "--policy", base, "--out", out, *how)
        return out / "policy"

    def learn(self, name, train, start):
        """The policy after GRPO from `start` on a folder of training questions."""
        out = self.scratch / f"run-{name}"
        if not (out / "policy/model.safetensors").exists():
            shutil.rmtree(out, ignore_errors=True)
            sets = ("--set", f"policy.checkpoint={start}", "--set", f"grpo.steps={self.given.steps}")
            self.forage("train", self.config(name, train, "questions"), *sets, "--out", out)
        return out / "policy"

    def cross_encoder(self):
        """A cross-encoder that starts from the sentence encoder and is trained on the policy's questions with the same candidates."""
        out = self.scratch / "cross-encoder"
        if not out.exists():
            folders = (self.given.encoder, self.data / "corpus.jsonl", self.scratch / "questions", self.scratch / "train.run", out)
            command = [self.given.python, Path(__file__).with_name("cross_encoder.py"), *folders]
            done = subprocess.run(list(map(str, command)))
            if done.returncode != 0:
                sys.exit(f"{shlex.join(map(str, command))}: exit code {done.returncode}")
        return out

    def compare(self, first, second):
        """The difference of two rankers in NDCG@10, paired by question."""
        found = self.forage("compare", self.scratch / f"{first}.jsonl", self.scratch / f"{second}.jsonl", "--json")
        difference = json.loads(found)["metrics"]["ndcg"]["difference"]
        return {part: difference[part] for part in ("estimate", "low", "high")}

    def run(self):
        self.prepare()
        found = {"questions": len(self.test), "train": len(self.train)}
        found["retrieval"] = self.retrieve(self.scratch / "questions", "test")["ndcg@10"]
        for ranker, policy in (("bm25", "first-stage"), ("oracle", "oracle"), ("random", "random")):
            found[ranker] = self.episodes(ranker, policy)
        if self.given.encoder:
            sets = ("--set", f"retriever.reranker={self.cross_encoder()}", "--set", f"retriever.rerank_depth={CANDIDATES}")
            found["cross-encoder"] = self.episodes("cross-encoder", "first-stage", *sets)
        start = self.start()
        found["start"] = self.episodes("start", start)
        for ranker, folder in (("trained", "questions"), ("shuffled", "shuffled")):
            found[ranker] = self.episodes(ranker, self.learn(ranker, folder, start))
        pairs = COMPARED | {f"{ranker} after bm25": ("bm25", ranker) for ranker in RANKERS if ranker != "bm25"}
        for name, pair in pairs.items():
            if set(pair) <= set(found):
                found |= {f"{name}/{part}": value for part, value in self.compare(*pair).items()}
        found |= {name: found[high] - found[low] for name, (high, low) in BOUNDS.items()}
        found["faults"] = self.faults
        return {f"{self.name}/{name}": value for name, value in found.items()}


def arguments(given):
    parser = argparse.ArgumentParser()
    for name in ("forage", "data", "scratch"):
        parser.add_argument(f"--{name}", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--python", help="a Python that has PyTorch and transformers, to train the cross-encoder with")
    parser.add_argument("--encoder", type=lambda path: Path(path).resolve(), help="the folder of a BERT sentence encoder, where it starts")
    parser.add_argument("--rehearse", action="store_true")
    for name, value in FULL.items():
        parser.add_argument(f"--{name}", type=int)
    given = parser.parse_args(given)
    usual = REHEARSAL if given.rehearse else FULL
    for name, value in usual.items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    # Other sizes are other files.
    given.scratch /= "-".join(str(getattr(given, name)) for name in FULL)
    if bool(given.python) != bool(given.encoder):
        parser.error("--python and --encoder go together")
    return given


def missing(data):
    """The files of the data folder that are not there."""
    return [path for _, folder, files in CORPORA.values() for path in (data / folder / file for file in files) if not path.exists()]


def claim(given):
    """Refuses a scratch folder of another config, data folder or encoder, whose files would count as those of this one."""
    kept = given.scratch / "task.json"
    what = {"config": CONFIG.read_text(), "data folder": str(given.data)}
    what |= {"encoder": str(given.encoder)} if given.encoder else {}
    before = json.loads(kept.read_text()) if kept.exists() else {}
    if other := [name for name in what if before.get(name, what[name]) != what[name]]:
        sys.exit(f"{given.scratch} is of another {', '.join(other)}; give another SCRATCH_FOLDER")
    given.scratch.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(before | what))


def main():
    given = arguments(sys.argv[1:])
    if gone := missing(given.data):
        sys.exit(f"there is no {', '.join(map(str, gone))}; name the folder that holds scifact and multihop with FORAGE_BENCH_DATA")
    if not given.encoder:
        print("no row for a cross-encoder: `bench/run rerank` brings what trains one", file=sys.stderr)
    claim(given)
    figures = {}
    for name in CORPORA:
        found = Bench(given, name).run()
        print(table(name, found), flush=True)
        figures |= found
    print(json.dumps({"bench": "rerank", "held": held(figures), "figures": figures}))


if __name__ == "__main__":
    main()
