"""Starts Chroma and Anserini's REST server, loads SciFact into both, and compares what forage gets from them."""

import argparse
import hashlib
import http.server
import json
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import httpx
import numpy as np

K = 10
DIMENSION = 64
SHELVES = 7


def read(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url, process):
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"error: {process.args[0]} ended with {process.returncode}")
        try:
            httpx.get(url, timeout=2)
            return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise SystemExit(f"error: nothing answers at {url}")


def search(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"error: search_many {arguments[0]}: {done.stderr}")
    return {row["_id"]: [(doc, score) for doc, score in row["hits"]] for row in map(json.loads, done.stdout.splitlines())}


def embed(texts):
    """Bags of words through a fixed random projection, unit length: vectors with structure, without a model."""
    words = {}
    vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in re.findall(r"\w+", text.lower()):
            if word not in words:
                seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
                words[word] = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
            vectors[row] += words[word]
    vectors -= vectors.mean(axis=0)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def chroma(options, corpus, queries, folder):
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([options.chroma, "run", "--path", str(folder / "chroma"), "--host", "127.0.0.1", "--port", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"{base}/api/v2/heartbeat", server)
        client = httpx.Client(base_url=f"{base}/api/v2/tenants/default_tenant/databases/default_database", timeout=120)
        made = client.post("/collections", json={"name": "scifact", "configuration": {"hnsw": {"space": "ip"}}})
        made.raise_for_status()
        collection = made.json()["id"]
        vectors = embed([f"{row['title']} {row['text']}" for row in corpus] + [row["text"] for row in queries])
        passages, asked = vectors[:len(corpus)], vectors[len(corpus):]
        for begin in range(0, len(corpus), 500):
            part = corpus[begin:begin + 500]
            client.post(f"/collections/{collection}/add", json={
                "ids": [row["_id"] for row in part], "documents": [row["text"] for row in part],
                "embeddings": passages[begin:begin + 500].tolist(),
                "metadatas": [{"title": row["title"] or "untitled", "shelf": f"s{(begin + n) % SHELVES}"} for n, row in enumerate(part)],
            }).raise_for_status()
        write(folder / "vectors.jsonl", [{"text": row["text"], "vector": vector.tolist()} for row, vector in zip(queries, asked)])
        (folder / "spec.json").write_text(json.dumps({"kind": "chroma", "url": base, "collection": "scifact"}))
        shelves = {"shelf": ["s2", "s5"]}
        figures = {}
        for name, filter, where in [("all", None, None), ("filtered", shelves, {"shelf": {"$in": shelves["shelf"]}})]:
            write(folder / "queries.jsonl", [{"_id": row["_id"], "text": row["text"], "filter": filter or {}} for row in queries])
            ours = search(options.search, "remote", folder / "spec.json", folder / "queries.jsonl", K, folder / "vectors.jsonl")
            theirs = client.post(f"/collections/{collection}/query", json={
                "query_embeddings": asked.tolist(), "n_results": K, "include": ["distances"], **({"where": where} if where else {}),
            }).json()
            kept = np.array([filter is None or f"s{n % SHELVES}" in shelves["shelf"] for n in range(len(corpus))])
            figures[name] = compare_vectors(corpus, queries, passages, asked, kept, ours, theirs["ids"])
        return figures
    finally:
        server.terminate()
        server.wait()


def compare_vectors(corpus, queries, passages, asked, kept, ours, theirs):
    place = {row["_id"]: n for n, row in enumerate(corpus)}
    same = found = worst = 0
    for number, row in enumerate(queries):
        hits = ours[row["_id"]]
        exact = passages.astype(np.float64) @ asked[number].astype(np.float64)
        worst = max([worst, *(abs(score - exact[place[doc]]) for doc, score in hits)])
        best = np.argsort(-np.where(kept, exact, -np.inf))[:K]
        found += len({doc for doc, _ in hits} & {corpus[n]["_id"] for n in best})
        same += {doc for doc, _ in hits} == set(theirs[number])
    return {"queries": len(queries), "same_as_plain_client": same, "recall_at_10_of_exact": found / (K * len(queries)),
            "largest_score_difference": worst}


def anserini(options, corpus, queries, folder):
    documents = folder / "documents"
    documents.mkdir()
    write(documents / "corpus.jsonl", [{"id": row["_id"], "contents": f"{row['title']}\n{row['text']}"} for row in corpus])
    index = folder / "lucene"
    classpath = [options.java, "-cp", options.jar]
    subprocess.run([*classpath, "io.anserini.index.IndexCollection", "-collection", "JsonCollection", "-input", str(documents), "-index", str(index),
                    "-generator", "DefaultLuceneDocumentGenerator", "-threads", "1", "-storeRaw"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    port = free_port()
    server = subprocess.Popen([*classpath, "io.anserini.api.RestServer", "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        base = f"http://127.0.0.1:{port}"
        wait_for(f"{base}/", server)
        (folder / "spec.json").write_text(json.dumps({"kind": "anserini", "url": base, "index": str(index)}))
        write(folder / "queries.jsonl", queries)
        theirs = search(options.search, "remote", folder / "spec.json", folder / "queries.jsonl", K)
        ours = search(options.search, "corpus", options.scifact, folder / "queries.jsonl", K)
    finally:
        server.terminate()
        server.wait()
    same = overlap = worst = 0
    for row in queries:
        one, other = dict(theirs[row["_id"]]), dict(ours[row["_id"]])
        same += set(one) == set(other)
        overlap += len(set(one) & set(other)) / max(len(other), 1)
        worst = max([worst, *(abs(one[doc] - other[doc]) for doc in set(one) & set(other))])
    return {"queries": len(queries), "same_ten_passages": same, "overlap_at_10": overlap / len(queries), "largest_score_difference": worst}


class Echo(http.server.BaseHTTPRequestHandler):
    """A Search-R1 server that answers every query with one passage: the credentials that came with it."""

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(404, b"{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        passage = {"document": {"id": self.headers["authorization"] or "nobody", "contents": "x"}, "score": 1.0}
        self.answer(200, json.dumps({"result": [[passage] for _ in asked["queries"]]}).encode())

    def log_message(self, *_):
        pass


def tls(options, folder):
    """A server with a certificate of a private authority is trusted with `ca_file` and refused without."""
    authority, key, certificate = folder / "ca.pem", folder / "key.pem", folder / "cert.pem"
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    (folder / "extensions").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    for command in [
        [*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", folder / "ca.key", "-out", authority],
        [*new, "-subj", "/CN=localhost", "-keyout", key, "-out", folder / "request.pem"],
        ["openssl", "x509", "-req", "-days", "2", "-in", folder / "request.pem", "-CA", authority, "-CAkey", folder / "ca.key",
         "-CAcreateserial", "-extfile", folder / "extensions", "-out", certificate],
    ]:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "token").write_text("t0ken\n")
    write(folder / "queries.jsonl", [{"_id": "1", "text": "a"}])
    settings = {"attempts": 1, "token_file": str(folder / "token")}
    outcome = {}
    for name, more in [("trusted", {"ca_file": str(authority)}), ("untrusted", {})]:
        spec = {"kind": "search-r1", "url": f"https://localhost:{server.server_port}", "http": {**settings, **more}}
        (folder / "spec.json").write_text(json.dumps(spec))
        done = subprocess.run([options.search, "remote", folder / "spec.json", folder / "queries.jsonl", "1"], capture_output=True, text=True)
        outcome[name] = done.stdout + done.stderr
    server.shutdown()
    return {"trusted_answers": int("Bearer t0ken" in outcome["trusted"]), "untrusted_refused": int("certificate" in outcome["untrusted"])}


def main():
    parser = argparse.ArgumentParser()
    for name in ["scifact", "chroma", "java", "jar", "search"]:
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    corpus = read(f"{options.scifact}/corpus.jsonl")
    queries = [{"_id": row["_id"], "text": row["text"]} for row in read(f"{options.scifact}/queries.test.jsonl")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        figures = {f"chroma_{name}": of for name, of in chroma(options, corpus, queries, folder).items()}
        figures["anserini"] = anserini(options, corpus, queries, folder)
        figures["tls"] = tls(options, folder)
    for name, row in figures.items():
        print(name, *(f"{key}={value:.6g}" for key, value in row.items()))
    held = all(row["same_as_plain_client"] == row["queries"] and row["largest_score_difference"] < 1e-5 and row["recall_at_10_of_exact"] > 0.9
               for name, row in figures.items() if name.startswith("chroma"))
    held &= figures["anserini"]["overlap_at_10"] > 0.999 and figures["anserini"]["largest_score_difference"] < 1e-4
    held &= figures["tls"] == {"trusted_answers": 1, "untrusted_refused": 1}
    print(json.dumps({"bench": "remote", "held": bool(held), "figures": figures}))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
