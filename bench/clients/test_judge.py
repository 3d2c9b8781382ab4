"""`forage judge audit` and OpenAI's Python package against servers that are judges.

Usage: test_judge.py FORAGE forage|vllm URL_EXACT URL_THINKING URL_CHATTY FOLDER. Prints a line per check; the last line is
JSON. Exit code 1 if any failed.
"""

import json
import subprocess
import sys
from pathlib import Path

import openai
from checks import check, failed, results

FORAGE, PEER, EXACT, THINKING, CHATTY, FOLDER = sys.argv[1:7]
ROWS = [
    {"question": "Where was Ada born?", "gold": "London", "answer": "London", "label": True},
    {"question": "Where was Ada born?", "gold": "London", "answer": "in Paris, or so they say", "label": False},
    {"question": "Who wrote it?", "gold": ["Ada", "Ada Lovelace"], "answer": "Ada Lovelace", "label": True},
    {"question": "Which year?", "gold": "1843", "answer": "1843", "label": True},
]


def says(url):
    """What the model says to OpenAI's client, as the judge asks it."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    message = [{"role": "user", "content": "Is the answer right?"}]
    return client.chat.completions.create(model="judge", messages=message, temperature=0, max_tokens=40).choices[0]


def toml(value):
    """A value as TOML has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + " }"
    return json.dumps(value)


def audit(url, rows=ROWS, model="judge", **settings):
    """Exit code, standard output and standard error of an audit."""
    folder = Path(FOLDER)
    told = "".join(f"{key} = {toml(value)}\n" for key, value in settings.items())
    judge = f'[reward.judge]\nweight = 1.0\nurl = "{url}"\nmodel = "{model}"\nattempts = 2\ntimeout_s = 20\n{told}'
    config = Path("configs/quickstart.toml").read_text().replace("[engine]", judge + "\n[engine]", 1)
    (folder / "judge.toml").write_text(config)
    (folder / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [FORAGE, "judge", "audit", folder / "labelled.jsonl", "--config", folder / "judge.toml", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


choice = says(EXACT)
check("openai: the verdict", json.loads(choice.message.content) == {"correct": True, "approach": 80})
check("openai: it stops by itself", choice.finish_reason == "stop")
code, out, err = audit(EXACT)
found = json.loads(out) if code == 0 else {"agreement": {}}
check("audit: runs", code == 0 and found["calls"] == len(ROWS) and found["tokens"] > 0)
agreement = found["agreement"]
check("audit: a judge that says yes is right where yes is", agreement.get("accuracy", {}).get("estimate") == 0.75)
check("audit: its errors are counted", (agreement.get("false_positives"), agreement.get("false_negatives")) == (1, 0))
cache = str(Path(FOLDER) / "verdicts.jsonl")
first, second = (json.loads(audit(EXACT, cache=cache)[1]) for _ in range(2))
check("audit: with a cache nothing is asked twice", (first["calls"], second["calls"]) == (len(ROWS), 0))
check("audit: and the findings stay", first["agreement"] == second["agreement"] == agreement)
code, out, err = audit(THINKING)
check("audit: thoughts before a verdict are passed over", code == 0 and json.loads(out)["agreement"] == agreement)
code, out, err = audit(THINKING, max_tokens=3)
check("audit: thoughts that take all of max_tokens are named", code == 1 and out == "" and "raise max_tokens" in err)
code, out, err = audit(THINKING, max_tokens=3, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
check("audit: extra_body switches thoughts off", code == 0 and json.loads(out)["agreement"] == agreement)
code, out, err = audit(EXACT, structured=True)
if PEER == "vllm":
    check("audit: a server holds replies to the schema", code == 0 and json.loads(out)["agreement"] == agreement)
else:
    check("audit: a schema that the server does not know is an error", code == 1 and out == "" and "response_format" in err)
check("openai: the chatty one", says(CHATTY).message.content == "Yes, the answer is right.")
code, out, err = audit(CHATTY)
check("audit: a yes in words is not a verdict", code == 1 and out == "" and "the reply is not a verdict" in err)
check("audit: the line and the tries are named", "labelled.jsonl, line" in err and "after 2 attempts" in err)
pair = {"question": "Where?", "gold": "London", "answers": ["London", "Paris"]}
code, out, err = audit(EXACT, rows=[pair])
check("audit: a verdict of another form is none", code == 1 and out == "" and "the reply is not a verdict" in err)
code, out, err = audit(EXACT, max_calls=2)
check("audit: a spent budget is an error", code == 1 and out == "" and "max_calls" in err)
code, out, err = audit(EXACT, model="other")
check("audit: a model the server does not have is named", code == 1 and out == "" and "other" in err)
code, out, err = audit("http://127.0.0.1:9")
check("audit: a judge that is not there is an error", code == 1 and out == "" and "127.0.0.1:9" in err)
figures = {"checks": len(results), "passed": len(results) - len(failed()), "failed": failed()}
print(json.dumps({"bench": f"clients-judge-{PEER}", "held": not failed(), "figures": figures}))
sys.exit(1 if failed() else 0)
