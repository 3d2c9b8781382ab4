"""Writes one corpus in the forms both systems read.

    convert.py CORPUS QUERIES OUT       BEIR rows to OUT/corpus.jsonl and OUT/queries.jsonl
    convert.py --topics QUERIES OUT     such queries to OUT/topics.tsv

The text indexed is Anserini's flat form, title and text with a space between: written as the first line and the rest, which
has the same words.
"""

import json
import sys
from pathlib import Path


def main():
    *given, out = sys.argv[1:]
    out = Path(out)
    if given[0] == "--topics":
        with open(given[1], encoding="utf-8") as rows, open(out / "topics.tsv", "w", encoding="utf-8") as file:
            for row in map(json.loads, rows):
                file.write(f"{row['_id']}\t{' '.join(row['text'].split())}\n")
        return
    corpus, queries = given
    with open(corpus, encoding="utf-8") as rows, open(out / "corpus.jsonl", "w", encoding="utf-8") as file:
        for row in map(json.loads, rows):
            title, text = (" ".join(row[key].split("\n")) for key in ("title", "text"))
            file.write(json.dumps({"id": row["_id"], "contents": f"{title}\n{text}"}, ensure_ascii=False) + "\n")
    with open(queries, encoding="utf-8") as rows, open(out / "queries.jsonl", "w", encoding="utf-8") as file:
        for row in map(json.loads, rows):
            file.write(json.dumps({"_id": row["_id"], "text": row["text"]}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
