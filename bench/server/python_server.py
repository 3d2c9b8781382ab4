"""The behaviour of Search-R1's published BM25 server: FastAPI over Lucene, one loop over the queries of a request; as many workers as
there are cores, behind httptools and uvloop.

    python_server.py INDEX PORT

`POST /retrieve {"queries", "topk", "return_scores"}` answers as that server does with return_scores true, and bare documents
without. Its searcher is Pyserini's; here the same Java classes are called without PyTorch being loaded for it, which only
makes this server smaller and quicker to start.
"""

import contextlib
import json
import os
import sys
from typing import List, Optional

import anserini
import jpype
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

DEFAULT_TOPK = 3
# How a worker hears of the index: it imports this module and is given no arguments.
INDEX = "LUCENE_INDEX"


class QueryRequest(BaseModel):
    queries: List[str]
    topk: Optional[int] = None
    return_scores: bool = False


class Bm25Retriever:
    def __init__(self, index):
        anserini.start()
        self.searcher = jpype.JClass("io.anserini.search.SimpleSearcher")(index)
        self.searcher.set_bm25(0.9, 0.4)

    def search(self, query, topk):
        hits = self.searcher.search(query, topk)
        documents = []
        for hit in hits:
            contents = json.loads(str(self.searcher.doc_raw(hit.docid)))["contents"]
            title, _, text = contents.partition("\n")
            documents.append({"title": title.strip('"'), "text": text, "contents": contents})
        return documents, [float(hit.score) for hit in hits]

    def batch_search(self, queries, topk):
        return [self.search(query, topk) for query in queries]


@contextlib.asynccontextmanager
async def started(app):
    """Each worker starts a Java machine, of which a process has one."""
    app.state.retriever = Bm25Retriever(os.environ[INDEX])
    yield


app = FastAPI(lifespan=started)


@app.post("/retrieve")
def retrieve_endpoint(request: QueryRequest):
    result = []
    for documents, scores in app.state.retriever.batch_search(request.queries, request.topk or DEFAULT_TOPK):
        if request.return_scores:
            result.append([{"document": doc, "score": score} for doc, score in zip(documents, scores)])
        else:
            result.append(documents)
    return {"result": result}


if __name__ == "__main__":
    os.environ[INDEX] = sys.argv[1]
    here = os.path.dirname(os.path.abspath(__file__))
    workers = len(os.sched_getaffinity(0))
    speed = {"http": "httptools", "loop": "uvloop", "workers": workers}
    uvicorn.run("python_server:app", app_dir=here, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", **speed)
