"""The machine: where CUDA is, what the card is and how full it gets, what the peers have."""

import ctypes.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import threading

from jobs import DEVICE, ROOT

FIND_WHEELS = """if True:
    import importlib.util
    found = importlib.util.find_spec("nvidia")
    print(*(found.submodule_search_locations if found else []), sep="\\n")
"""
FIND_PEERS = """if True:
    import importlib.metadata, json, torch, transformers, peft
    found = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "peft")}
    print(json.dumps(found | {"cuda": torch.version.cuda, "gpu": torch.cuda.is_available()}))
"""


def missing_headers(root):
    """Headers that compiled kernels include, as far as `root` lacks them."""
    include = root / "include"
    missing = [name for name in ("mma.h", "crt/mma.h", "cuda_bf16.h") if not (include / name).exists()]
    # cuda_bf16.h includes it. It moved with CUDA 13; both places are searched.
    if not any((include / place).exists() for place in ("nv/target", "cccl/nv/target")):
        missing.append("nv/target")
    return missing


def toolkits(python):
    """Folders that may hold CUDA's headers, each with those that may hold its NVRTC."""
    if os.environ.get("CUDA_PATH"):
        roots = [pathlib.Path(os.environ["CUDA_PATH"])]
    else:
        nvcc = shutil.which("nvcc")
        roots = [pathlib.Path(nvcc).resolve().parent.parent] if nvcc else []
        roots.append(pathlib.Path("/usr/local/cuda"))
    for root in roots:
        yield root, [root / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
    # The wheels that torch comes with: since CUDA 13 in one folder, before that in one for each part.
    found = subprocess.run([python or sys.executable, "-c", FIND_WHEELS], capture_output=True, text=True)
    for site in map(pathlib.Path, found.stdout.splitlines()):
        for root in sorted(site.glob("cu[0-9]*"), reverse=True):
            yield root, [root / "lib"]
        if (site / "cuda_runtime").exists():
            yield site / "cuda_runtime", [site / "cuda_nvrtc/lib"]


def cuda_environment(python):
    """CUDA_PATH and LD_LIBRARY_PATH for forage, and what to tell of them; ends the program without."""
    headers, libraries, looked = None, [], []
    for root, folders in toolkits(python):
        missing = missing_headers(root)
        nvrtc = [folder for folder in folders if any(folder.glob("libnvrtc.so*"))]
        # Headers and NVRTC of one toolkit are of one version, so such a pair stands before two halves.
        if not missing and nvrtc:
            headers, libraries = root, nvrtc
            break
        headers = headers or (None if missing else root)
        libraries = libraries or nvrtc
        lacks = ([f"no {', '.join(missing)}"] if missing else []) + ([] if nvrtc else ["no libnvrtc.so"])
        looked.append(f"  {root}: {', '.join(lacks) if root.exists() else 'not there'}")
    if not headers or not (libraries or ctypes.util.find_library("nvrtc")):
        sys.exit(
            "error: forage compiles kernels where it runs, and CUDA's headers or NVRTC are missing here:\n"
            + "\n".join(looked)
            + "\nset CUDA_PATH to a whole toolkit, or install the wheels nvidia-cuda-nvrtc, nvidia-cuda-crt,"
            " nvidia-cuda-runtime and nvidia-cuda-cccl, of a version the driver serves, for PYTHON"
        )
    environment = {"CUDA_PATH": str(headers)}
    if libraries:
        before = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([*map(str, libraries), *before])
    # A toolkit's file is named with the whole version.
    names = [file.resolve().name for folder in libraries for file in folder.glob("libnvrtc.so*")]
    return environment, {"cuda_path": str(headers), "nvrtc": max(names, key=len, default="of the system")}


def nvidia_smi(query):
    """What nvidia-smi says of the first card the bench may use; `None` where it says nothing."""
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    command = ["nvidia-smi", "-i", card, f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return [part.strip() for part in lines[0].split(",")] if done.returncode == 0 and lines else None


class CardMemory:
    """The most MiB of the card that were in use while it watched; `None` where nvidia-smi does not say."""

    def __enter__(self):
        self.most, self.done = None, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        while not self.done.is_set():
            used = nvidia_smi("memory.used")
            if used is None or not used[0].isdigit():
                return
            self.most = max(self.most or 0, int(used[0]))
            self.done.wait(0.5)

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


def peers_of(python, rehearse):
    """Versions of PYTHON's packages. Ends the program when the peers cannot run; a rehearsal does without."""
    done = subprocess.run([python, "-c", FIND_PEERS], capture_output=True, text=True)
    fault = None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        fault = f"{python} cannot run the peers, which need torch, transformers and PEFT: {last}"
    else:
        found = json.loads(done.stdout.splitlines()[-1])
        if found["gpu"] or rehearse:
            return found
        fault = f"the torch {found['torch']} of {python} sees no GPU"
    if not rehearse:
        sys.exit(f"error: {fault}")
    print(f"a rehearsal does without peers: {fault}", flush=True)
    return None


def describe(cuda, peers, rehearse):
    """What the table says of the machine. Ends the program where no driver answers, but in a rehearsal."""
    found = nvidia_smi("name,driver_version,memory.total")
    if found is None and not rehearse:
        sys.exit("error: nvidia-smi does not answer: is the NVIDIA driver there?")
    gpu, driver, memory = found or (None, None, None)
    return {"gpu": gpu, "driver": driver, "gpu_mib": memory, **cuda, "processor": processor(), "peers": peers}


def processor():
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} threads"


def commit():
    if os.environ.get("FORAGE_COMMIT"):
        return os.environ["FORAGE_COMMIT"]
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def doctor(forage, results, environment, limit, rehearse):
    """What forage says of the device. Ends the program when it finds a fault; a rehearsal's device has
    some."""
    command = [forage, "doctor", "--device", DEVICE, "--json"]
    fault = f"`{' '.join(command)}` "
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=os.environ | environment,
            timeout=limit,
        )
    except OSError as error:
        sys.exit(f"error: {forage} cannot be started: {error}")
    except subprocess.TimeoutExpired:
        fault += f"takes longer than {limit:.0f} s"
    else:
        (results / "doctor.json").write_text(done.stdout)
        print(done.stdout.rstrip(), flush=True)
        if done.returncode == 0:
            return
        print(done.stderr.rstrip(), flush=True)
        fault += f"ended with status {done.returncode}"
    if not rehearse:
        sys.exit(f"error: {fault}; no row was run")
    print(f"a rehearsal goes on: {fault}", flush=True)
