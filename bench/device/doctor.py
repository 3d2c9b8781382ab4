"""What `forage doctor` says of CUDA under the stub driver, whole and with a part missing: doctor.py FORAGE SCRATCH (see run.sh)."""

import fcntl
import json
import os
import pathlib
import subprocess
import sys

LONGEST = 600  # seconds of a process
# Kernels are not executed, so whatever compares numbers must fail, and nothing else.
NUMBERS = {"an f32 product", "a bf16 product", "log-probabilities and gradients of a decoder"}


def doctor(forage, device="cuda:0", **settings):
    """The lines that do not hold, as `name: found`."""
    command = [forage, "doctor", "--device", device, "--json"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=LONGEST)
    report = json.loads(done.stdout)
    if done.returncode != 1 or report["holds"]:
        sys.exit(f"error: {settings or device}: status {done.returncode}, holds: {report['holds']}\n{done.stderr}")
    return {line["name"]: line["found"] for line in report["checks"] if line["of"] in ("CUDA", device) and line["status"] != "ok"}


def main():
    forage, scratch = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    scratch.mkdir(parents=True, exist_ok=True)
    wrong = []

    def expect(what, found, name, words):
        text = found.get(name, "")
        print(f"{what}: {name}: {text}")
        if words not in text:
            wrong.append(f"{what}: {found}, but {name} should say: {words}")

    whole = doctor(forage, XDG_CACHE_HOME=str(scratch))
    print(f"whole: {', '.join(sorted(whole))} do not hold")
    if set(whole) != NUMBERS:
        wrong.append(f"whole: {whole}, but {sorted(NUMBERS)} should not hold, and nothing else")
    for what, device, settings, words in [
        ("no card", "cuda:0", {"CUDA_STUB_DEVICES": "0"}, "the driver shows no card"),
        ("another card", "cuda:5", {}, "there are 1 cards"),
        ("an older driver", "cuda:0", {"CUDA_STUB_VERSION": "12090"}, "the driver serves CUDA 12.9 at most"),
    ]:
        expect(what, doctor(forage, device, **settings), "open", words)

    # Headers without CCCL, which is a wheel of its own.
    cuda, lacking = pathlib.Path(os.environ["CUDA_PATH"]), scratch / "lacking"
    include = lacking / "include"
    include.mkdir(parents=True)
    for file in (cuda / "include").iterdir():
        if file.name not in ("cccl", "nv"):
            (include / file.name).symlink_to(file)
    expect("headers without CCCL", doctor(forage, CUDA_PATH=str(lacking)), "open", "lacks nv/target")

    # Kernels are in a file that a process has to itself.
    kernels = scratch / "forage/kernels"
    locks = [file.open("r+") for file in kernels.glob("*.lock")]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    before = sorted(file.name for file in kernels.glob("*.db"))
    doctor(forage, XDG_CACHE_HOME=str(scratch))
    after = sorted(file.name for file in kernels.glob("*.db"))
    print(f"files of kernels: {before}, then {after} while another process has the first")
    if len(locks) != 1 or len(before) != 1 or after != sorted([*before, before[0].replace(".db", "-1.db")]):
        wrong.append(f"a second process keeps its kernels in {sorted(set(after) - set(before))}, with {len(locks)} locked")
    # What Turso makes where it opens a file for several processes.
    wrong += [f"{file} was opened for several processes" for file in kernels.glob("*-tshm")]

    print("\n".join(wrong) or "6 passed, 0 failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
