"""Compares terms, text by text, with Lucene's: finds the analyzer difference behind a differing ranking.

    tokens.py ANALYZE CORPUS...     every document of JSON-lines corpora
    tokens.py ANALYZE --unicode     every character of Unicode, alone and beside letters, digits and itself

ANALYZE is the built `analyze` example. Prints differing texts (20 at most, with both lists of terms) and one JSON line.
"""

import json
import subprocess
import sys
import unicodedata

import anserini


def documents(paths):
    for path in paths:
        for line in open(path, encoding="utf-8"):
            row = json.loads(line)
            yield row.get("contents") or f"{row['title']} {row['text']}"


def characters():
    """Each assigned character in the places where word breaking looks at it."""
    for code in range(0x80, 0x110000):
        letter = chr(code)
        if unicodedata.category(letter) not in ("Cn", "Cs", "Co"):
            yield f"{letter} a{letter}b A{letter} {letter}s 1{letter}2 {letter}{letter} x'{letter} k{letter}'s running{letter}"


def main():
    analyze, *paths = sys.argv[1:]
    texts = list(characters() if paths == ["--unicode"] else documents(paths))
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    output = subprocess.run([analyze], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    ours = [json.loads(line) for line in output.splitlines()]
    anserini.start()
    lucene = anserini.Analyzer()
    differing = 0
    for text, terms in zip(texts, ours, strict=True):
        expected = lucene(text)
        if terms != expected:
            differing += 1
            if differing <= 20:
                code = f"U+{ord(text[0]):04X} " if paths == ["--unicode"] else ""
                ours_only = [term for term in terms if term not in expected]
                lucene_only = [term for term in expected if term not in terms]
                print(f"{code}forage {ours_only} Lucene {lucene_only} in {text[:80]!r}")
    print(json.dumps({"texts": len(texts), "terms": sum(map(len, ours)), "differing": differing}))


if __name__ == "__main__":
    main()
