"""The programs of bench/fidelity: published problems and programs that models wrote, each as {"id", "suite", "code"}."""

import gzip
import json
import sys
from pathlib import Path


def lines(path):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8")
    with opened as rows:
        return [json.loads(row) for row in rows]


def humaneval(folder):
    """Prompt, canonical solution, test, and the call of `check`."""
    for row in lines(folder / "HumanEval.jsonl.gz"):
        code = f"{row['prompt']}{row['canonical_solution']}\n{row['test']}\ncheck({row['entry_point']})\n"
        yield {"id": row["task_id"], "suite": "HumanEval", "code": code}


def mbpp(folder):
    """Code, set-up, tests and challenge tests."""
    for row in lines(folder / "mbpp.jsonl"):
        tests = row["test_list"] + row["challenge_test_list"]
        code = "\n".join([row["code"], row["test_setup_code"], *tests]) + "\n"
        yield {"id": f"MBPP/{row['task_id']}", "suite": "MBPP", "code": code}


def cruxeval(folder):
    """Function, and its published input and output as an assertion."""
    for row in lines(folder / "cruxeval.jsonl"):
        code = f"{row['code']}\nassert f({row['input']}) == {row['output']}\n"
        yield {"id": f"CRUXEval/{row['id']}", "suite": "CRUXEval", "code": code}


def written(folder):
    """Programs with the output and exception recorded for them."""
    for row in lines(folder / "programs.jsonl"):
        recorded = {"stdout": row["stdout"], "exc": row["exc"]}
        yield {"id": row["id"], "suite": "programs", "code": row["code"], "recorded": recorded}


def load(data):
    folder = Path(data) / "python"
    if not folder.is_dir():
        sys.exit(f"error: no folder `{folder}`; set FORAGE_BENCH_DATA to the data folder")
    return [program for suite in (humaneval, mbpp, cruxeval, written) for program in suite(folder)]
