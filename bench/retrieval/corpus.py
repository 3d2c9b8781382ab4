"""Makes the benches' large corpus and its queries from the real text of a data folder, always the same way.

    corpus.py DATA OUT [PASSAGES]

Windows of 100 words slide over every text of the folder (abstracts, Wikipedia intros and pages, paragraphs, agent
transcripts) with the stride that gives at least PASSAGES passages (220,000). Written are

    corpus.jsonl    {"id", "contents": "\"Title\"\ntext"}, the form Search-R1 and Anserini both read
    queries.jsonl   {"_id", "text"}: 1,000 bags of 4 to 10 words of one passage, 1,000 real questions, shuffled
    qrels.tsv       the passage each bag was drawn from

A window that runs past the end of a text goes on in the next one, so that all have 100 words.
"""

import hashlib
import json
import sys
from pathlib import Path

WORDS = 100
BAGS = 1000
QUESTIONS = 1000


class Random:
    """A stream that stays the same in every Python: counter-mode SHA-256."""

    def __init__(self, seed):
        self.seed, self.counter = seed, 0

    def below(self, bound):
        self.counter += 1
        digest = hashlib.sha256(f"{self.seed}:{self.counter}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % bound

    def sample(self, items, count):
        items = list(items)
        for at in range(count):
            other = at + self.below(len(items) - at)
            items[at], items[other] = items[other], items[at]
        return items[:count]


def rows(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def texts(data):
    """(name, title, text) of everything that is prose."""
    for folder in ["scifact", "multihop/hotpotqa", "multihop/2wikimultihopqa", "multihop/musique", "xquad_en"]:
        for row in rows(data / folder / "corpus.jsonl"):
            yield f"{folder.split('/')[-1]}-{row['_id']}", row["title"], row["text"]
    for row in rows(data / "wiki_pages/pages.jsonl"):
        yield f"page-{row['id']}", row["title"], row["content"]
    for number, row in enumerate(rows(data / "trajectories/r1_searcher.jsonl")):
        yield f"transcript-{number}", row["question"], row["gen_text_store"]


def questions(data):
    files = ["scifact/queries.test.jsonl", "xquad_en/questions.jsonl"]
    files += [f"multihop/{name}/questions.jsonl" for name in ["hotpotqa", "2wikimultihopqa", "musique"]]
    return [row["text"] for file in files for row in rows(data / file)]


def passages(data, at_least):
    """(id, title, words) of every window."""
    words, owners = [], []
    for name, title, text in texts(data):
        title = " ".join(title.replace('"', "").split())
        for word in text.split():
            words.append(word)
            owners.append((name, title))
    stride = (len(words) - WORDS) // (at_least - 1)
    for start in range(0, len(words) - WORDS + 1, stride):
        name, title = owners[start]
        yield f"{name}-{start}", title, words[start : start + WORDS]


def main():
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    at_least = int(sys.argv[3]) if len(sys.argv) > 3 else 220_000
    out.mkdir(parents=True, exist_ok=True)
    windows = list(passages(data, at_least))
    with open(out / "corpus.jsonl", "w", encoding="utf-8") as corpus:
        for name, title, words in windows:
            contents = f'"{title}"\n{" ".join(words)}'
            corpus.write(json.dumps({"id": name, "contents": contents}, ensure_ascii=False) + "\n")
    random = Random("queries")
    asked = []
    for _ in range(BAGS):
        name, _, words = windows[random.below(len(windows))]
        asked.append((" ".join(random.sample(words, 4 + random.below(7))), name))
    asked += [(text, None) for text in random.sample(questions(data), QUESTIONS)]
    asked = random.sample(asked, len(asked))
    with open(out / "queries.jsonl", "w", encoding="utf-8") as queries, open(out / "qrels.tsv", "w") as qrels:
        qrels.write("query-id\tcorpus-id\tscore\n")
        for number, (text, source) in enumerate(asked):
            queries.write(json.dumps({"_id": f"q{number:04}", "text": text}, ensure_ascii=False) + "\n")
            if source:
                qrels.write(f"q{number:04}\t{source}\t1\n")
    print(f"{len(windows)} passages, {len(asked)} queries in {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
