"""Compares a forage run with Lucene's on one corpus; prints one JSON object.

    compare.py LUCENE_INDEX TOPICS ANSERINI_RUN FORAGE_RUN K

Documents and their order are those of Anserini's own run. Scores are Lucene's before Anserini rounds them to four
decimals, from the same index and query. Where a list is cut at K, documents tied with the last one may differ: those
above the tie must be the same.
"""

import json
import sys
from itertools import groupby

import anserini

TIE = 1e-6


def read_run(path):
    with open(path, encoding="utf-8") as lines:
        rows = (line.split(" ") for line in lines)
        return {query: [(row[2], float(row[4])) for row in group] for query, group in groupby(rows, lambda row: row[0])}


def certain(hits, k):
    """The documents that are in the list whatever the order of ties at the cut."""
    if len(hits) < k:
        return {name for name, _ in hits}
    cut = hits[-1][1] * (1 + 1e-5)
    return {name for name, score in hits if score > cut}


def misordered(ours, scores):
    """Neighbours in our order whose Lucene scores rise by more than rounding."""
    known = [scores[name] for name, _ in ours if name in scores]
    return sum(later > earlier * (1 + TIE) for earlier, later in zip(known, known[1:]))


def main():
    index, topics, anserini_run, forage_run, k = *sys.argv[1:5], int(sys.argv[5])
    anserini.start()
    searcher = anserini.Searcher(index)
    theirs, ours = read_run(anserini_run), read_run(forage_run)
    counts = {"queries": 0, "pairs": 0, "documents_differ": 0, "queries_differ": 0, "order_differs": 0}
    counts |= {"same_position": 0, "score_difference": 0.0, "anserini_differs": 0}
    examples = []
    for line in open(topics, encoding="utf-8"):
        query, text = line.rstrip("\n").split("\t")
        exact = searcher(text, k)
        listed, found = theirs.get(query, []), ours.get(query, [])
        # Proof that the exact scores belong to Anserini's ranking.
        counts["anserini_differs"] += [name for name, _ in exact] != [name for name, _ in listed]
        scores = dict(exact)
        missing = (certain(exact, k) - {name for name, _ in found}) | (certain(found, k) - scores.keys())
        counts["queries"] += 1
        counts["pairs"] += len(exact)
        counts["documents_differ"] += len(missing)
        counts["queries_differ"] += bool(missing)
        counts["order_differs"] += misordered(found, scores)
        counts["same_position"] += sum(one == other for (one, _), (other, _) in zip(exact, found))
        for name, score in found:
            if name in scores:
                difference = abs(score - scores[name]) / scores[name]
                counts["score_difference"] = max(counts["score_difference"], difference)
        if missing and len(examples) < 5:
            examples.append(f"{query} {text!r}: {sorted(missing)[:4]}")
    for example in examples:
        print(f"differs: {example}", file=sys.stderr)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
