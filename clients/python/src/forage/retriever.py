"""Searches in an index that `forage serve retriever` serves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index

from .errors import Invalid
from .http import Closing, Http

__all__ = ["Passage", "Retriever"]


@dataclass(frozen=True)
class Passage:
    """A passage that was found; `score` is the retriever's, higher is better."""

    id: str
    title: str
    text: str
    score: float


class Retriever(Closing):
    """A server of `forage serve retriever`. Threads may share it."""

    def __init__(self, base_url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        """Connects to nothing yet.

        Args:
            base_url: like `http://localhost:8000`.
            token: the server's, where it has one; blanks and line ends around it are dropped.
            timeout: seconds to wait for each piece of an answer.

        Raises:
            ValueError: `base_url` is not an address, or `token` holds what no header can.
        """
        self._http = Http(base_url, token, timeout, 0.0)

    def search(self, query: str, k: int = 3, *, mode: str | None = None) -> list[Passage]:
        """The best passages for a query, as `search_many` finds them."""
        _check("query", query)
        (found,) = self.search_many([query], k, mode=mode)
        return found

    def search_many(self, queries: Sequence[str], k: int = 3, *, mode: str | None = None) -> list[list[Passage]]:
        """The best passages for each query, in one request.

        Args:
            queries: as many as the server takes at a time.
            k: most passages for each, at least 1.
            mode: `bm25`, `boolean`, `dense` or `hybrid`, where the index has it; the server's by default.

        Raises:
            TypeError: `queries` is a string, or does not hold strings; or `k` is not a whole number.
            ValueError: `k` is less than 1.
            Invalid: the server does not take this.
            Fault: the server failed. It is never an empty list.
        """
        if isinstance(queries, str):
            raise TypeError("queries is a str, and not a list of them; `search` takes one query")
        if not isinstance(queries, Iterable):
            raise TypeError(f"queries is {queries!r}; it must be a list of str")
        asked = list(queries)
        for place, query in enumerate(asked):
            _check(f"queries[{place}]", query)
        body = {"queries": asked, "topk": _passages(k), "return_scores": True, "mode": mode}
        try:
            answer = self._http.post("/retrieve", body)
        except Invalid as error:
            if not str(error).startswith("no route"):
                raise
            told = f"{self._http.base_url} serves no retriever; `forage.Client` plays what `forage serve env` serves"
            raise Invalid(told, "other_server") from error
        return [[_passage(hit) for hit in hits] for hits in answer["result"]]

    def close(self) -> None:
        """Closes this thread's connection; the next search opens another."""
        self._http.close()


def _check(name: str, query: object) -> None:
    if not isinstance(query, str):
        raise TypeError(f"{name} is {query!r}; it must be a str")


def _passages(k: int) -> int:
    try:
        # An int of numpy is one too.
        number = index(k)
    except TypeError as error:
        raise TypeError(f"k is {k!r}; it must be an int of at least 1") from error
    if number < 1 or isinstance(k, bool):
        raise ValueError(f"k is {k!r}; it must be an int of at least 1")
    return number


def _passage(hit: dict[str, dict[str, str] | float]) -> Passage:
    document, score = hit["document"], hit["score"]
    assert isinstance(document, dict) and isinstance(score, (int, float))  # noqa: PT018
    return Passage(document["id"], document["title"], document["text"], score)
