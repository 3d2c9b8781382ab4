"""What the tests with the real packages of others share.

Everything they take from this package comes through here.
"""

import importlib
import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from types import ModuleType

import forage

__all__ = ["CHECKPOINT", "CONFIG", "adapter", "chat_checkpoint", "forage", "sampled"]

CONFIGS = Path(__file__).parents[3] / "configs"
CHECKPOINT = CONFIGS / "quickstart"
"""The built-in policy, which plays the protocol and finds some answers."""
CONFIG = CONFIGS / "quickstart.toml"
"""The environment it was made for."""


def adapter(name: str) -> ModuleType:
    """One of the package's modules, which import what they adapt to."""
    return importlib.import_module(f"{forage.__name__}.{name}")


def chat_checkpoint(folder: Path) -> Path:
    """The built-in policy with a chat template that writes messages one behind the other, without marks.

    A chat is then the running text that the policy was taught, token for token.
    """
    checkpoint = folder / "policy"
    copytree(CHECKPOINT, checkpoint)
    settings = checkpoint / "tokenizer_config.json"
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": template}))
    return checkpoint


def sampled(policy: str, text: str, stop: Sequence[str]) -> str:
    """What the policy at this address writes behind a text, with the stop string that ends it."""
    body = {"prompt": text, "max_tokens": 24, "stop": list(stop), "include_stop_str_in_output": True}
    request = urllib.request.Request(policy + "/v1/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["text"]
