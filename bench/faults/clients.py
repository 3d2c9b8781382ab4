"""Cells of the three clients: retriever, judge and sampler, each a short training run over a peer that fails.

A fault that strikes one request in ten must not show: no episode is lost, and metrics and weights are those of the run without
faults, bit for bit. A fault that stays ends the run with its kind and the address, and `--resume` over the healed peer ends
with the same weights: nothing is lost.
"""

import json
import re
import time
from pathlib import Path

from peers import Passages, Peer, Sampler, Verdicts
from program import ROOT, Cell, alarms, rows, run, shown, trained

STEPS = 4
# Of the retry in the log, where a fault that did no harm is counted.
LOG = "forage_net=debug"
KINDS = {
    "gone": r"requests in a row unanswered",
    "connect": r"cannot connect",
    "broken": r"breaks off",
    "timeout": r"no answer within",
    "status": r"HTTP status \d+",
    "too long": r"longer than \d+ bytes",
    "protocol": r"does not fit the protocol|contradicts itself",
}


def typed(error):
    """The kinds of faults that an error names."""
    return [kind for kind, pattern in KINDS.items() if re.search(pattern, error)]


def alike(row, clean):
    """Tells whether a row is that of the run without faults. An evaluation under way when a peer began to fail is of fewer questions, and
    says of how many. A push that is tried again is verified by other texts."""
    asked = "val/questions"
    lost = row.get(asked, 0) < clean.get(asked, 0)
    left_out = ("push/logprob_abs_diff", "val/") if lost else ("push/logprob_abs_diff",)
    row, clean = ({name: value for name, value in one.items() if not name.startswith(left_out)} for one in (row, clean))
    return row == clean


class Client:
    """A client of the program, and a run that depends on it."""

    def __init__(self, name, sound, bound_s, config, settings):
        self.name, self.sound, self.bound_s = name, sound, bound_s
        self.config, self.settings = config, settings
        self.clean = None
        self.asked = 0

    def train(self, peer, folder, *more, resume=False):
        settings = [f"{key}={value}".replace("URL", peer.url) for key, value in self.settings.items()]
        overrides = [part for setting in settings for part in ("--set", setting)]
        text = Path(self.config).read_text().replace("URL", peer.url)
        config = Path(folder).parent / f"{Path(folder).name}.toml"
        config.write_text(text)
        return run("train", config, *overrides, "--out", folder, *(["--resume"] if resume else []), *more, log=LOG)

    def prepare(self, work):
        """The run without faults, whose rows and weights are the measure of the others."""
        peer = Peer(self.sound)
        folder = work / f"{self.name}-clean"
        peer.fail(None)
        ended = self.train(peer, folder)
        peer.close()
        if ended.rc != 0:
            raise SystemExit(f"the {self.name} run without faults failed: {ended.stderr[-2000:]}")
        self.clean, self.asked = (rows(folder), trained(folder)), peer.asked

    def same(self, folder):
        found, (clean, weights) = rows(folder), self.clean
        return len(found) == len(clean) and all(map(alike, found, clean)) and trained(folder) == weights


def retriever(work, world):
    text = (ROOT / "configs" / "smoke.toml").read_text()
    begin, end = text.index("[data.world]"), text.index("[environment]")
    questions = world / "search-r1"
    files = "\n".join(
        f'{split} = "{questions / name}.jsonl"' for split, name in [("train", "train"), ("dev", "dev"), ("test", "test")]
    )
    remote = '[retriever.remote]\nkind = "search-r1"\nurl = "URL"\n\n'
    limits = "[retriever.remote.http]\ntimeout_ms = 1000\nattempts = 4\nbackoff_ms = 100\ndeadline_ms = 8000\n\n"
    config = work / "retriever.toml"
    config.write_text(f"{text[:begin]}[data.files]\n{files}\n\n{remote}{limits}{text[end:]}")
    passages = []
    with open(questions / "wiki.jsonl") as lines:
        for line, _ in zip(lines, range(200)):
            passages.append(json.loads(line))
    return Client("retriever", Passages(passages), 20, config, {"grpo.checkpoint_every": 1})


def judge():
    reward = '{ url = "URL", model = "judge", weight = 1.0, timeout_s = 1.0 }'
    settings = {"grpo.checkpoint_every": 1, "reward.judge": reward}
    return Client("judge", Verdicts(), 20, ROOT / "configs" / "smoke.toml", settings)


def sampler():
    server = (
        '{ kind = "vllm", url = "URL", model = "policy", context = 320, request_timeout_s = 1.0, retries = 3, '
        "backoff_ms = 100, give_up_after = 6, ready_timeout_s = 10.0 }"
    )
    # A coin for a reward, since random tokens earn nothing and a group without spread teaches nothing. They are not drawn from the
    # weights, which is a grave alarm.
    settings = {
        "grpo.checkpoint_every": 1,
        "grpo.sentinel.stop": "false",
        "sampler": server,
        "reward.random": "1.0",
    }
    return Client("sampler", Sampler(), 30, ROOT / "configs" / "smoke.toml", settings)


def passing(client, fault, work, retried=True):
    """A fault in one request of ten."""
    expected = "retried; rows and weights as without the fault" if retried else "rows and weights as without it"
    cell = Cell(client.name, f"{fault}, 1 request in 10", expected)
    peer = Peer(client.sound)
    folder = work / f"{client.name}-passing-{re.sub('[^a-z0-9]+', '-', fault)}"
    peer.fail(fault, rare=True)
    ended = client.train(peer, folder)
    peer.close()
    lost = sum(row.get("episode/infra_frac", 0) for row in rows(folder))
    cell.seen = f"rc {ended.rc}" + (f"; {shown(ended.error)}" if ended.rc else f", {len(rows(folder))} steps")
    cell.typed = ", ".join(typed(ended.error if ended.rc else ended.stderr)) if retried else "no fault"
    cell.counted = f"{ended.retries} retries in the log" if retried else ""
    cell.lost = "nothing" if ended.rc == 0 and lost == 0 and client.same(folder) else f"infra_frac {lost:.3f}"
    cell.check(peer.failed > 0, "the fault never struck")
    cell.check(ended.rc == 0, "the run failed")
    cell.check(lost == 0, "episodes were lost")
    cell.check(client.same(folder), "rows or weights differ from the run without faults")
    cell.check(not retried or ended.retries > 0, "no retry in the log")
    return cell.done()


def lasting(client, fault, kinds, work):
    """A fault from the middle of the run on, until somebody mends the peer and resumes."""
    expected = f"stops within {client.bound_s} s and names {' or '.join(kinds)} and the address; resumes to the same weights"
    cell = Cell(client.name, f"{fault}, from then on", expected)
    peer = Peer(client.sound)
    folder = work / f"{client.name}-lasting-{re.sub('[^a-z0-9]+', '-', fault)}"
    peer.fail(fault, after=client.asked // 2)
    ended = client.train(peer, folder)
    end = time.monotonic()
    cell.seen = f"rc {ended.rc}; {shown(ended.error)}"
    found = typed(ended.error)
    cell.typed = ", ".join(found)
    told = re.search(r"(\d+) of (\d+) episodes", ended.error) or re.search(r"left (\d+) requests", ended.error)
    warned = [alarm["kind"] for alarm in alarms(folder)]
    cell.counted = told[0] if told else ", ".join(warned)
    if peer.first_failure is not None:
        cell.told_s = round(end - peer.first_failure, 1)
    cell.check(peer.first_failure is not None, "the fault never struck")
    cell.check(ended.rc not in (0, None), "the run did not stop")
    cell.check(set(found) & set(kinds), "the error does not name the kind of fault")
    cell.check(str(peer.port) in ended.error, "the error does not name the address")
    cell.check(told is not None, "the failed episodes are not counted")
    cell.check(cell.told_s is None or cell.told_s <= client.bound_s, "it took too long to tell")
    peer.heal()
    again = client.train(peer, folder, resume=True)
    peer.close()
    cell.lost = "nothing" if again.rc == 0 and client.same(folder) else f"resume: rc {again.rc} {shown(again.error, 80)}"
    cell.check(again.rc == 0 and client.same(folder), "the resumed run ends otherwise than the one without faults")
    return cell.done()


def silent(client, work, always):
    """Empty results: no fault by the protocol, and no run to learn from."""
    cell = Cell(
        client.name,
        "empty results, always" if always else "empty results, from then on",
        "an alarm within 20 steps, 5 where it worked before",
    )
    peer = Peer(client.sound)
    folder = work / f"{client.name}-empty-{always}"
    peer.fail("empty results", after=0 if always else client.asked // 2)
    ended = client.train(peer, folder, "--set", f"grpo.steps={22 if always else 12}")
    peer.close()
    raised = [
        alarm for alarm in alarms(folder) if "empty" in f"{alarm['kind']} {alarm['message']}" or "no passage" in alarm["message"]
    ]
    shares = [value for row in rows(folder) for name, value in row.items() if "empty" in name and value]
    cell.seen = f"rc {ended.rc}; " + shown(raised[0]["message"] if raised else ended.error)
    cell.typed = f"alarm {raised[0]['kind']} at step {raised[0]['step']}" if raised else "none"
    cell.counted = f"{len(shares)} rows" if shares else "no"
    cell.lost = "nothing"
    cell.check(raised, "no alarm about empty results")
    return cell.done()


def refused(client, work):
    """A server that cannot take some queries, each time they come: the policy wrote them, so no episode is lost."""
    cell = Cell(client.name, "400 for the same query of ten", "the policy is told; no episode is lost")
    peer = Peer(client.sound)
    folder = work / f"{client.name}-refused"
    peer.fail("400", picky=True)
    ended = client.train(peer, folder)
    # A run keeps few of its episodes, an evaluation all of them.
    episodes = work / "refused.jsonl"
    config = folder.parent / f"{folder.name}.toml"
    asked = run("eval", config, "--policy", "search-title", "--limit", 60, "--out", episodes)
    peer.close()
    lost = sum(row.get("episode/infra_frac", 0) for row in rows(folder))
    told = episodes.read_text().count("refuses the query") if episodes.exists() else 0
    cell.seen = f"rc {ended.rc}" + (f"; {shown(ended.error)}" if ended.rc else f", {len(rows(folder))} steps")
    cell.typed, cell.counted = "refused", f"{told} observations say so"
    cell.lost = "nothing" if ended.rc == 0 and lost == 0 else f"infra_frac {lost:.3f}"
    cell.check(peer.failed > 0, "the fault never struck")
    cell.check(ended.rc == 0 and lost == 0, "episodes were lost, or the run")
    cell.check(asked.rc == 0, f"the evaluation failed: {shown(asked.error, 80)}")
    cell.check(told > 0, "no observation says so")
    return cell.done()


def cells(work, world):
    """The cells as functions, the slow ones first."""
    clients = [retriever(work, world), judge(), sampler()]
    for client in clients:
        client.prepare(work)
    by_name = {client.name: client for client in clients}
    found = [
        lambda: silent(by_name["retriever"], work, True),
        lambda: silent(by_name["retriever"], work, False),
        lambda: refused(by_name["retriever"], work),
    ]
    always = {
        "hang": ["timeout", "gone"],
        "slow header": ["timeout", "gone"],
        "byte drip": ["timeout", "gone"],
        "500": ["status", "gone"],
        "401": ["status", "gone"],
        "400": ["status", "gone"],
        "redirect": ["status", "gone"],
        "garbage with status 200": ["protocol", "gone"],
        "other JSON with status 200": ["protocol", "gone"],
        "empty body with status 200": ["protocol", "gone"],
        "too few results": ["protocol", "gone"],
        "cut body": ["broken", "gone"],
        "connection reset": ["connect", "gone"],
        "oversized body": ["too long", "timeout", "gone"],
        "oversized header": ["connect", "gone"],
        "refused": ["connect", "gone"],
    }
    rare = [
        "500",
        "503",
        "429",
        "hang",
        "slow header",
        "byte drip",
        "cut body",
        "connection reset",
        "garbage with status 200",
        "other JSON with status 200",
        "empty body with status 200",
    ]
    for client in clients:
        for fault, kinds in always.items():
            found.append(lambda client=client, fault=fault, kinds=kinds: lasting(client, fault, kinds, work))
        for fault in rare:
            found.append(lambda client=client, fault=fault: passing(client, fault, work))
        found.append(lambda client=client: passing(client, "slow body, in time", work, retried=False))
        # Of a retriever, lists without a hit may be the truth: `silent` has them.
        if client.name != "retriever":
            found.append(lambda client=client: lasting(client, "empty answers", ["protocol", "gone"], work))
            found.append(lambda client=client: passing(client, "empty answers", work))
    return found
