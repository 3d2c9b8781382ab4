"""The table and the last line of bench/lucene: report.py WORK CORPUS..."""

import json
import sys
from pathlib import Path

SCIFACT_NDCG = 0.6789


def main():
    work, *names = sys.argv[1:]
    held, figures = True, {}
    print(f"{'corpus':16} {'passages':>8} {'queries':>7} {'pairs':>9} {'documents':>9} {'order':>6} {'score':>8}")
    print(f"{'':16} {'':>8} {'':>7} {'compared':>9} {'differ':>9} {'wrong':>6} {'rel.':>8}")
    for name in names:
        folder = Path(work) / name
        found = json.loads((folder / "compared.json").read_text())
        passages = json.loads((folder / "forage/manifest.json").read_text())["counts"]["passages"]
        same = found["documents_differ"] == found["order_differs"] == found["anserini_differs"] == 0
        held &= same and found["score_difference"] <= 1e-5 and found["pairs"] > 0
        figures[name] = {"passages": passages} | found
        print(
            f"{name:16} {passages:8} {found['queries']:7} {found['pairs']:9} {found['documents_differ']:9}"
            f" {found['order_differs']:6} {found['score_difference']:8.1e}"
        )
    metrics = json.loads((Path(work) / "scifact/metrics.json").read_text())
    figures["scifact_ndcg@10"] = round(metrics["ndcg@10"], 4)
    held &= figures["scifact_ndcg@10"] == SCIFACT_NDCG
    print(f"SciFact nDCG@10 {metrics['ndcg@10']:.4f}, published {SCIFACT_NDCG} (Anserini 1.7.1, Lucene scores unrounded)")
    print(json.dumps({"bench": "lucene", "held": held, "figures": figures}))


if __name__ == "__main__":
    main()
