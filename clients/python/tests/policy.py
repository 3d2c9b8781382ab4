"""A tokenizer of bytes and a policy that knows the answers: what stands in for a model where none is needed."""

from collections.abc import Sequence

from forage.tokens import Generation


class Bytes:
    """A byte is a token; 256 ends a sequence, and so may 3."""

    eos_token_id = 256
    all_special_ids = (3, 256)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return bytes(token for token in token_ids if token < 256).decode(errors="replace")

    def apply_chat_template(self, conversation, *, add_generation_prompt, tokenize) -> str:
        assert add_generation_prompt
        assert not tokenize
        return "".join(f"[{turn['role']}]{turn['content']}" for turn in conversation) + "[assistant]"


def script(gold: str, turn: int) -> str:
    """A search, then the answer."""
    return "<search>town</search>" if turn == 0 else f"<answer>{gold}</answer>"


def written(text: str, finish: str = "stop") -> Generation:
    """A turn, each token with a log-probability of its own."""
    ids = list(text.encode())
    return Generation(ids, [-0.5 - place / 1000 for place in range(len(ids))], finish)


def agrees(response: Sequence[int], mask: Sequence[int], logprobs: Sequence[float], turns: Sequence[str]) -> None:
    """The policy's tokens are what it wrote, id by id, and nothing else is counted."""
    assert len(response) == len(mask) == len(logprobs)
    own = [token for token, counted in zip(response, mask, strict=True) if counted]
    assert bytes(own).decode() == "".join(turns)
    expected = [value for turn in turns for value in written(turn).logprobs]
    assert [value for value, counted in zip(logprobs, mask, strict=True) if counted] == expected
    assert all(value == 0.0 for value, counted in zip(logprobs, mask, strict=True) if not counted)
    shown = bytes(token for token, counted in zip(response, mask, strict=True) if not counted).decode()
    assert "<information>" in shown
    assert "<search>" not in shown
