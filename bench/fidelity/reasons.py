"""Whether two runs of a program are the same, and if not, why, as far as that can be told without reading it."""

import ast
import re

import cpython

# Modules of CPython that a sandbox without processes, network and devices has no use for.
ABSENT = {"_ctypes", "ctypes", "curses", "dbm", "fcntl", "mmap", "multiprocessing", "readline", "resource", "select",
          "socket", "socketserver", "sqlite3", "ssl", "subprocess", "termios", "tkinter", "tty", "turtle"}

# `programs.jsonl` holds no more of an output than this.
RECORDED = 20000


def absent(code):
    """Whether a program imports a module that is absent by design."""
    imported = re.findall(r"^[ \t]*(?:import|from)[ \t]+(\w+)", code, re.M)
    return bool(ABSENT.intersection(imported))


def plain(text):
    """Text without addresses, which no two processes share."""
    return re.sub(r"0x[0-9a-fA-F]{6,}", "0x…", text)


def same_stdout(expected, got):
    """Whether two runs print the same and both or neither of them raise."""
    if got["status"] not in ("ok", "exception") or bool(expected["error"]) != bool(got["error"]):
        return False
    wanted, printed = plain(expected["stdout"]), plain(got["stdout"])
    return printed[: len(wanted)] == wanted if len(expected["stdout"]) == RECORDED else printed == wanted


def message_of(error):
    """A message without the places of files: where a module lies, and the name of the program."""
    text = re.sub(r"(from '[\w.]+') \([^()]*\)$", r"\1", plain(error["message"]))
    return re.sub(r" \(<?[\w./]+>?, line (\d+)\)$", r" (line \1)", text)


def same_error(expected, got, message=True):
    wanted, raised = expected["error"], got["error"]
    if not wanted or not raised or got["status"] != "exception":
        return not wanted and got["status"] == "ok"
    kinds = [error["kind"].rsplit(".", 1)[-1] for error in (wanted, raised)]
    messages = [message_of(error) for error in (wanted, raised)]
    if "Syntax" in kinds[0] and "line" in wanted:
        messages = [re.sub(r" \(line \d+\)$", "", text) for text in messages]
    return kinds[0] == kinds[1] and (not message or messages[0] == messages[1])


def outcome(run):
    """A run in a line."""
    ended = f"{run['error']['kind']}: {run['error']['message']}" if run["error"] else run["status"]
    return f"{ended} | {run['stdout'].strip()}" if run["stdout"].strip() else ended


def uses_sets(code):
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, (ast.Set, ast.SetComp)) or
               isinstance(node, ast.Name) and node.id in ("set", "frozenset") for node in nodes)


def numbers(text):
    return [float(found) for found in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", text)]


def close(one, two):
    """Whether texts differ in the last digits of numbers only."""
    left, right = numbers(one), numbers(two)
    return len(left) == len(right) and all(abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1) for a, b in zip(left, right))


def reason(program, live, got, expected=None):
    """A class for a difference."""
    expected = expected or live
    if got["status"] not in ("ok", "exception"):
        return got["status"]
    if live["status"] not in ("ok", "exception"):
        return f"{live['status']} under CPython"
    if expected is not live and not (same_stdout(expected, live) and same_error(expected, live)):
        return "CPython does not repeat what was recorded"
    other = cpython.run(program["code"], hash_seed=1)
    if (other["stdout"], other["status"]) != (live["stdout"], live["status"]):
        return "hash order"
    shuffled = expected["stdout"] != got["stdout"] and sorted(expected["stdout"]) == sorted(got["stdout"])
    if uses_sets(program["code"]) and (shuffled or got["error"] and got["error"]["kind"] == "AssertionError"):
        return "set order"
    if not same_error(expected, got, message=False):
        raised = got["error"]
        if raised and raised["kind"] in ("ModuleNotFoundError", "ImportError", "AttributeError", "NotImplementedError"):
            return "missing in the sandbox"
        return "other exception" if expected["error"] and raised else "exception" if raised else "no exception"
    if not same_error(expected, got):
        return "message wording"
    return "digits" if close(expected["stdout"], got["stdout"]) else "output"
