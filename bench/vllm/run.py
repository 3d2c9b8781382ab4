"""Runs of configs/smoke.toml whose episodes a real server samples: run.py FORAGE WORK vllm|sglang PROGRAM [CASE...].

PROGRAM is `vllm`, or the Python that has SGLang. Called by run.sh here and in bench/sglang.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import load_file, save_file

FORAGE, WORK, ENGINE, PROGRAM = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
CONFIG = "configs/smoke.toml"
CONTEXT = 320
STEPS = 6
# Seconds after which a run, or a wait for its rows, hangs.
LONGEST = 900
# Largest mean difference of log-probabilities, nats, by the type that both sides compute in: in bf16 that of pushes and of the sentinel, in
# f32 a stricter one, since the model here is small.
LOGPROBS = Path("trainer/src/logprobs.rs").read_text()
BOUND = {"f32": 1e-5, "bf16": float(re.search(r"ROUNDED_GAP: f64 = ([0-9.]+);", LOGPROBS)[1])}

# Name, adapter or whole weights, tied head, type, and what happens: nothing; `stale`, where the run may stop before it samples from a head
# that was not replaced, and must go on over a server of the model that the error names; `killed`, where the only server is killed in the
# middle and the run resumed; `one killed`, where one of two is killed and comes back; `fault`, where the server keeps its head whatever is
# pushed, and the run must stop with the figures within one step (vLLM alone); `deaf`, where it answers every push and keeps its weights, and
# the run must stop before its first step (vLLM alone).
CASES = [
    ("lora-tied", "lora", True, "f32", ""),
    ("lora-untied", "lora", False, "f32", ""),
    ("full-untied", "full", False, "f32", ""),
    ("full-tied", "full", True, "f32", "stale"),
    ("lora-tied-bf16", "lora", True, "bf16", ""),
    ("full-untied-bf16", "full", False, "bf16", ""),
    ("full-tied-bf16", "full", True, "bf16", "stale"),
    ("killed", "lora", True, "f32", "killed"),
    ("one-of-two-killed", "lora", True, "f32", "one killed"),
    ("fault", "full", True, "f32", "fault"),
    ("deaf-bf16", "full", False, "bf16", "deaf"),
]
CASES = [case for case in CASES if ENGINE == "vllm" or case[-1] not in ("fault", "deaf")]

# Plugins of vLLM. `fault` gives the output head back what it computed with before weights were loaded: the fault of its processor's
# build, whose packed copy of the head outlives a load, made proof against every way to push. `deaf` loads nothing.
FAULTS = {"fault": """
def register():
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    load = GPUModelRunner.reload_weights

    def stale(self, *args, **kwargs):
        modules = [module for module in self.get_model().modules() if isinstance(module, VocabParallelEmbedding)]
        kept = [(module, module.cpu_linear) for module in modules if hasattr(module, "cpu_linear")]
        assert kept, "no head with a packed copy"
        load(self, *args, **kwargs)
        for module, product in kept:
            module.cpu_linear = product

    GPUModelRunner.reload_weights = stale
""", "deaf": """
def register():
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    GPUModelRunner.reload_weights = lambda self, *args, **kwargs: None
"""}


# What SGLang imports where it was told of no device, and does not call: without it models with rotary embeddings do not load.
SHIM = """
def rotary_embedding(*args, **kwargs):
    raise NotImplementedError("vllm is not installed")
"""


ENDS = {signal.SIGTERM, signal.SIGINT}


@contextmanager
def held():
    """Signals that end the script wait: a process that is started inside has its name before one can arrive."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)


def started(command, **how):
    """A process, which these signals end as ever."""
    return subprocess.Popen(command, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS), **how)


class Server:
    """A server of a folder."""

    def __init__(self, folder, port, dtype, adapters, plugin=None):
        self.folder, self.port, self.dtype, self.adapters, self.plugin = folder, port, dtype, adapters, plugin
        self.log = open(WORK / f"{ENGINE}-{port}.log", "ab")
        self.start()

    def start(self):
        command, environment = self.vllm() if ENGINE == "vllm" else self.sglang()
        environment = os.environ | environment | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}
        self.process = started(command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True)

    def sglang(self):
        package = WORK / "shim" / "vllm"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        (package / "_custom_ops.py").write_text(SHIM)
        dtype = {"f32": "float32", "bf16": "bfloat16"}[self.dtype]
        adapters = ["--enable-lora", "--max-lora-rank", "8", "--lora-target-modules", "all"] if self.adapters else []
        command = (
            [PROGRAM, "-m", "sglang.launch_server", "--model-path", self.folder, "--host", "127.0.0.1", "--port", str(self.port)]
            + ["--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", dtype]
            + ["--max-total-tokens", "16384", *adapters]
        )
        return command, {"PYTHONPATH": str(package.parent)}

    def vllm(self):
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_DO_NOT_TRACK": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
        if self.plugin is not None:
            environment["PYTHONPATH"] = str(self.plugin)
        dtype = {"f32": "float32", "bf16": "bfloat16"}[self.dtype]
        command = (
            [PROGRAM, "serve", self.folder, "--served-model-name", "policy", "--host", "127.0.0.1", "--port", str(self.port)]
            + ["--dtype", dtype, "--max-model-len", str(CONTEXT), "--enforce-eager"]
            + ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "3"]
        )
        return command, environment

    def ready(self):
        until = time.monotonic() + 600
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"{ENGINE} ended with {self.process.returncode}: see {self.log.name}")
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5)
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        raise RuntimeError(f"{ENGINE} did not start in ten minutes: see {self.log.name}")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def model(tied, dtype):
    """The quickstart's start as a folder, its head tied or apart."""
    folder = WORK / f"model-{'tied' if tied else 'untied'}-{dtype}"
    if folder.exists():
        return folder
    subprocess.run([FORAGE, "export", "builtin:quickstart", "--merged", folder, "--type", dtype], check=True, capture_output=True)
    config = json.loads((folder / "config.json").read_text())
    if config["tie_word_embeddings"] and not tied:
        weights = load_file(folder / "model.safetensors")
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config["tie_word_embeddings"] = False
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def faulty(event):
    """A folder with the plugin of a fault."""
    name = f"faulty_{event}"
    folder = WORK / name
    info = folder / f"{name}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(FAULTS[event])
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{name} = {name}:register\n")
    return folder


def train(out, folder, weights, dtype, urls, *extra):
    """The process of a run."""
    settings = [
        f'policy.checkpoint="{folder}"',
        f"grpo.steps={STEPS}",
        "grpo.checkpoint_every=1",
        "grpo.keep_checkpoints=2",
        "grpo.evaluate_every=0",
        f'sampler.kind="{ENGINE}"',
        f"sampler.url={json.dumps(urls)}",
        *(['sampler.model="policy"'] if ENGINE == "vllm" else []),
        f"sampler.context={CONTEXT}",
        f'sampler.dtype="{dtype}"',
        "sampler.retries=2",
    ]
    if weights == "lora":
        settings += ["policy.lora.rank=8", "policy.lora.alpha=16.0"]
    pairs = [word for setting in settings for word in ("--set", setting)]
    log = open(out.with_suffix(".log"), "ab")
    return started([FORAGE, "train", CONFIG, "--out", out, *pairs, *extra], stdout=log, stderr=log)


def rows(out):
    path = out / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def wait_for_rows(run, out, count):
    until = time.monotonic() + LONGEST
    while len(rows(out)) < count:
        if run.poll() is not None:
            raise RuntimeError(f"the run ended with {run.returncode} after {len(rows(out))} steps")
        if time.monotonic() > until:
            raise RuntimeError(f"the run has {len(rows(out))} of {count} steps after {LONGEST} seconds")
        time.sleep(0.1)


def figures(out):
    """What a run's rows say: pushes, differences after pushes and in rollouts, episodes that ended in a fault."""
    found = rows(out)
    values = lambda key: [row[key] for row in found if row.get(key) is not None]
    most = lambda key: max(values(key), default=None)
    return {
        "steps": len(found),
        "verified": sum(values("push/verified")),
        "push_diff": most("push/logprob_abs_diff"),
        "mismatch": most("mismatch/logprob_abs_diff"),
        "mismatch_by_step": values("mismatch/logprob_abs_diff"),
        "ratio_deviation": most("mismatch/ratio_deviation_max"),
        "lost": most("episode/infra_frac"),
    }


def case(name, weights, tied, dtype, event, port):
    folder, out = model(tied, dtype), WORK / name
    log = out.with_suffix(".log")
    told = lambda: "".join(log.read_text().strip().splitlines()[-1:])
    plugin = faulty(event) if event in FAULTS else None
    count = 2 if event == "one killed" else 1
    servers, run, seen = [], None, {}
    try:
        for number in range(count):
            with held():
                servers.append(Server(folder, port + number, dtype, weights == "lora", plugin))
        urls = [server.ready().url for server in servers]
        begun = time.monotonic()
        with held():
            run = train(out, folder, weights, dtype, urls)
        if event == "one killed":
            wait_for_rows(run, out, 2)
            servers[1].kill()
            servers[1].start()
        elif event == "killed":
            wait_for_rows(run, out, 3)
            servers[0].kill()
        rc = run.wait(timeout=LONGEST)
        if rc != 0 and event in ("stale", "killed"):
            seen = {"stopped_after": len(rows(out)), "told": told()}
            if event == "stale":
                # At most the step that changed the weights first.
                named = re.search(r"restart the server with the model in (.+?), then start", told())
                if named is None or len(rows(out)) > 1:
                    raise RuntimeError(f"not stopped at once, or without a way out: {told()}")
                servers[0].folder = named[1]
                servers[0].kill()
            servers[0].start()
            servers[0].ready()
            again = ["--resume"] if rows(out) else []
            with held():
                run = train(out, folder, weights, dtype, urls, *again)
            rc = run.wait(timeout=LONGEST)
        seen |= {"rc": rc, "seconds": round(time.monotonic() - begun, 1), **figures(out)}
        if event in FAULTS:
            seen["told"] = told()
    finally:
        if run is not None:
            run.kill()
            run.wait()
        for server in servers:
            server.kill()
    if event in FAULTS:
        most = 0 if event == "deaf" else 1
        seen["held"] = rc != 0 and seen["steps"] <= most and "nats" in seen["told"]
    else:
        seen["held"] = (
            rc == 0 and seen["steps"] == STEPS and seen["lost"] == 0
            and all(seen[key] is not None and seen[key] <= BOUND[dtype] for key in ("mismatch", "push_diff"))
        )
    if not seen["held"]:
        for file in [log, *(Path(server.log.name) for server in servers)]:
            print(f"-- {name}: {file.name}", *file.read_text(errors="replace").splitlines()[-25:], sep="\n", file=sys.stderr, flush=True)
    return seen


def main():
    # As the keyboard's: what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    wanted = set(sys.argv[5:])
    unknown = wanted - {name for name, *_ in CASES}
    if unknown:
        raise SystemExit(f"no case is called {', '.join(sorted(unknown))}; there are: {', '.join(name for name, *_ in CASES)}")
    results = {}
    print("| case | weights | head | type | steps | pushes seen | difference after a push | in rollouts | share of episodes lost | held |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for number, (name, weights, tied, dtype, event) in enumerate(CASES):
        if wanted and name not in wanted:
            continue
        try:
            seen = case(name, weights, tied, dtype, event, 18200 + 10 * number)
        except Exception as error:  # noqa: BLE001: a case that broke is a row that does not hold
            seen = {"held": False, "told": f"{type(error).__name__}: {error}", **figures(WORK / name)}
        results[name] = seen
        number_of = lambda key: "" if seen[key] is None else f"{seen[key]:.1e}"
        head = "tied" if tied else "apart"
        print(
            f"| {name} | {weights} | {head} | {dtype} | {seen['steps']} | {seen['verified']:.0f} | {number_of('push_diff')} "
            f"| {number_of('mismatch')} | {seen['lost']} | {'yes' if seen['held'] else 'NO'} |",
            flush=True,
        )
        if "told" in seen:
            print(f"{name}: {seen['told']}", file=sys.stderr, flush=True)
    held = all(seen["held"] for seen in results.values())
    print(json.dumps({"bench": ENGINE, "held": held, "figures": results}))
    raise SystemExit(0 if held else 1)


main()
