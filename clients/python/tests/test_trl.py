"""TRL's GRPOTrainer on the processor, a few steps of each kind.

`Rollout` trains the tiny policy of `configs/quickstart`, which plays the protocol already. Tools are called by a tiny model of
random weights whose sampling is scripted: TRL parses its calls, calls the environment, and trains on what comes of it.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

trl = pytest.importorskip("trl", reason="trl is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from conftest import serving  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from forage import Client  # noqa: E402
from forage.trl import Rollout, environment_factory, environment_reward, rows, tool_rows  # noqa: E402

CONFIGS = Path(__file__).parents[3] / "configs"


def arguments(folder: Path, **changes) -> "trl.GRPOConfig":
    return trl.GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        num_generations=4,
        gradient_accumulation_steps=1,
        learning_rate=1e-5,
        temperature=1.0,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        **{"max_steps": 2, "max_completion_length": 384} | changes,
    )


@pytest.fixture(scope="module")
def quickstart(world) -> Iterator[str]:
    with serving("--config", str(CONFIGS / "quickstart.toml"), "--limit", "64") as address:
        yield address


def kept(into: list) -> object:
    """The rewards as TRL gives them to a reward function."""

    def environment_reward_kept(episode_reward, **columns):
        into.extend(episode_reward)
        return environment_reward(episode_reward)

    return environment_reward_kept


def test_rollouts_train_a_policy(quickstart, tmp_path):
    client, rewards, seen = Client(quickstart, patience=60), [], []
    rollout = Rollout(client)

    def watched(prompts, trainer):
        played = rollout(prompts, trainer)
        seen.append((prompts, played))
        return played

    tokenizer = AutoTokenizer.from_pretrained(CONFIGS / "quickstart")
    model = AutoModelForCausalLM.from_pretrained(CONFIGS / "quickstart", dtype=torch.float32)
    before = {name: value.clone() for name, value in model.named_parameters()}
    trainer = trl.GRPOTrainer(
        model=model,
        args=arguments(tmp_path, max_steps=3),
        train_dataset=rows(client, 32),
        processing_class=tokenizer,
        rollout_func=watched,
        reward_funcs=[kept(rewards)],
    )
    trainer.train()
    assert len(rewards) == 24
    assert set(rewards) <= {0.0, 1.0}
    # The warm-started policy finds some answers and not all.
    assert 0 < sum(rewards) < 24
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.named_parameters())
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert math.isclose(sum(entry["reward"] for entry in log) / 3, sum(rewards) / 24, abs_tol=1e-6)
    for prompts, played in seen:
        for place, prompt in enumerate(prompts):
            ids, mask, logprobs = (played[name][place] for name in ("completion_ids", "env_mask", "logprobs"))
            assert len(ids) == len(mask) == len(logprobs)
            assert all(value <= 0 for value in logprobs)
            assert all((value == 0.0) or counted for value, counted in zip(logprobs, mask, strict=True))
            text = tokenizer.decode(played["prompt_ids"][place] + ids)
            assert prompt.startswith("fw-train-")
            shown = tokenizer.decode([token for token, counted in zip(ids, mask, strict=True) if not counted])
            assert ("<information>" in shown) == ("</search>" in tokenizer.decode(ids)), text


def test_log_probabilities_are_the_models(quickstart, tmp_path):
    """What `sample` says of its tokens is what a forward pass over the whole episode says."""
    client, seen = Client(quickstart, patience=60), []
    rollout = Rollout(client)
    tokenizer = AutoTokenizer.from_pretrained(CONFIGS / "quickstart")
    model = AutoModelForCausalLM.from_pretrained(CONFIGS / "quickstart", dtype=torch.float32)

    def watched(prompts, trainer):
        played = rollout(prompts, trainer)
        for prompt, ids, mask, told in zip(
            *(played[name] for name in ("prompt_ids", "completion_ids", "env_mask", "logprobs")), strict=True
        ):
            with torch.no_grad():
                logits = trainer.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
            scores = logits.log_softmax(-1).gather(-1, torch.tensor(ids).unsqueeze(-1)).squeeze(-1)
            seen.extend(
                abs(score - value) for score, value, own in zip(scores.tolist(), told, mask, strict=True) if own
            )
        return played

    trl.GRPOTrainer(
        model=model,
        args=arguments(tmp_path, max_steps=1, top_k=0),
        train_dataset=rows(client, 8),
        processing_class=tokenizer,
        rollout_func=watched,
        reward_funcs=[environment_reward],
    ).train()
    assert len(seen) > 50
    assert max(seen) < 1e-3


class Scripted(Qwen2ForCausalLM):
    """Writes what `script` says after what it reads."""

    tokenizer = None
    script = None

    def generate(self, input_ids, attention_mask=None, generation_config=None, **kwargs):
        texts = [self.tokenizer.decode(row[mask.bool()]) for row, mask in zip(input_ids, attention_mask, strict=True)]
        new = [self.tokenizer.encode(type(self).script(place, text)) for place, text in enumerate(texts)]
        width = max(map(len, new))
        pad = self.tokenizer.pad_token_id
        padded = torch.tensor([ids + [self.tokenizer.eos_token_id] + [pad] * (width - len(ids)) for ids in new])
        return torch.cat([input_ids, padded], dim=1)


def tools_trainer(client: Client, folder: Path, script) -> "trl.GRPOTrainer":
    tokenizer = AutoTokenizer.from_pretrained(CONFIGS / "quickstart")
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen2_5.jinja").read_text()
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(1)
    model = Scripted(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, **shape))
    Scripted.tokenizer, Scripted.script = tokenizer, staticmethod(script)
    return trl.GRPOTrainer(
        model=model,
        args=arguments(folder, max_completion_length=2000),
        train_dataset=tool_rows(client, 8),
        processing_class=tokenizer,
        environment_factory=environment_factory(client),
    )


def call(name: str, **values: str) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": values}) + "\n</tool_call>"


def test_tools_are_called_and_paid(url, world, tmp_path):
    golds = dict(zip(world.questions, world.golds, strict=True))
    texts = []

    def script(place: int, text: str) -> str:
        question = next(question for question in golds if question in text)
        texts.append(text)
        if "<tool_response>" not in text:
            return call("search", query=question)
        if "Noted." in text:
            return "Done."
        # Half of a group is right.
        return call("answer", answer=golds[question] if place % 2 else "wrong")

    trainer = tools_trainer(Client(url, patience=60), tmp_path, script)
    trainer.train()
    assert any("<information>" in text for text in texts)
    log = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["reward"] for entry in log] == [0.5, 0.5]
    assert [entry["tools/call_frequency"] for entry in log] == [2.0, 2.0]
    assert [entry["tools/failure_frequency"] for entry in log] == [0.0, 0.0]
    assert all(entry["grad_norm"] > 0 for entry in log)


def test_a_model_that_never_answers_is_scored_and_leaves_no_session(url, tmp_path):
    client = Client(url, patience=60)
    trainer = tools_trainer(client, tmp_path, lambda place, text: "I do not know.")
    trainer.train()
    assert [entry["reward"] for entry in trainer.state.log_history if "reward" in entry] == [0.0, 0.0]


def test_faults_are_no_rewards(dead_url, tmp_path):
    client = Client(dead_url, patience=60)
    trainer = tools_trainer(client, tmp_path, lambda place, text: call("search", query="x"))
    trainer.args.max_tool_calling_iterations = trainer.max_tool_calling_iterations = 2
    weights = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    assert all(torch.equal(value, weights[name]) for name, value in trainer.model.named_parameters())
    log = [entry for entry in trainer.state.log_history if "step_time" in entry]
    assert log
    assert not any(entry.get("reward") == 0.0 for entry in log), log
    tokenizer = AutoTokenizer.from_pretrained(CONFIGS / "quickstart")

    class Trainer:
        processing_class = tokenizer
        args = arguments(tmp_path)

    def searching(trainer, episodes, stop):
        from forage.tokens import Generation

        ids = tokenizer.encode("<search>x</search>")
        return [Generation(ids, [-1.0] * len(ids), "stop") for _ in episodes]

    played = Rollout(client, generate=searching)([task.task_id for task in client.tasks(2)], Trainer())
    assert environment_reward(**{"completions": [], **played}) == [None, None]
    assert not any(any(mask) for mask in played["env_mask"])
