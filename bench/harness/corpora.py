"""The large corpus that several benchmarks search, and Lucene's indexes."""

import json
import shutil
import subprocess
import sys

from harness.declare import ROOT, BenchError
from harness.workspace import digest

# What the data folder has of prose; bench/retrieval/corpus.py reads it.
PROSE = ("scifact", "multihop", "xquad_en", "wiki_pages", "trajectories")


def windows(work, passages):
    """At least so many windows of 100 words, with 2,000 queries: corpus.jsonl, queries.jsonl, qrels.tsv."""
    maker = ROOT / "bench/retrieval/corpus.py"
    files = sorted(path for folder in PROSE for path in (work.data / folder).rglob("*.jsonl"))
    key = {"passages": passages, "maker": digest(maker), "data": digest(*files)}
    return work.input("windows", key, lambda folder: work.run(sys.executable, maker, work.data, folder, passages))


def terms(work, name, path, field):
    """The terms of each text of a file of JSON lines, as our analysis makes them: a file of JSON lists."""
    analyze = work.example("forage-retriever", "analyze")

    def make(folder):
        with open(path, encoding="utf-8") as rows, open(folder / "terms.jsonl", "wb") as out:
            process = subprocess.Popen([analyze], stdin=subprocess.PIPE, stdout=out, text=True)
            with process.stdin as texts:
                texts.writelines(json.dumps(json.loads(row)[field]) + "\n" for row in rows)
            if process.wait():
                raise BenchError(f"{analyze} ended with {process.returncode}")

    return work.input(f"terms-{name}", {"texts": digest(path), "field": field, "program": digest(analyze)}, make) / "terms.jsonl"


def lucene_index(work, anserini, corpora, threads=1):
    """Anserini's index of JSON-lines files with stored documents, each file read by one thread; made once."""
    key = {"corpora": [digest(path) for path in corpora], "threads": threads, "peers": anserini.versions}

    def make(folder):
        source = work.scratch / "lucene-source"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for number, path in enumerate(corpora):
            (source / f"{number}.json").symlink_to(path)
        work.run(*index_command(work, anserini, source, folder / "index", threads))

    return work.input("lucene", key, make) / "index"


def index_command(work, anserini, source, out, threads):
    """The command that makes such an index of a folder."""
    collection = ["io.anserini.index.IndexCollection", "-collection", "JsonCollection", "-optimize", "-storeRaw"]
    generator = ["-generator", "DefaultLuceneDocumentGenerator"]
    return [*anserini.java(work.home), *collection, *generator, "-input", source, "-index", out, "-threads", threads]


def halves(work, corpus):
    """Two parts of one file, for two threads: Anserini gives each thread files of its own."""
    folder = work.scratch / "halves"
    folder.mkdir(exist_ok=True)
    with open(corpus, "rb") as lines, open(folder / "0.json", "wb") as even, open(folder / "1.json", "wb") as odd:
        for number, line in enumerate(lines):
            (odd if number % 2 else even).write(line)
    return folder
