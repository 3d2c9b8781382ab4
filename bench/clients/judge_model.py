"""Makes a tiny model that writes one reply by heart, whatever it is asked: `judge_model.py TOKENIZER_FOLDER OUT_FOLDER PIECE...`.

One layer of Qwen2's shape with the tokenizer of configs/quickstart, to which each piece of the reply is added as one token. Its
attention writes nothing, so that what comes next hangs on the last token alone: behind the assistant's mark stands the reply, then the
end. A model that thinks (`<think>`, thoughts, `</think>`) begins behind its thoughts where the template's `enable_thinking` is false.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

MARK = "<assistant>"
source, out, *reply = sys.argv[1:]
THINKS = "</think>" in reply
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}"
    + MARK
    + ("{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}" if THINKS else "")
    + "{% endif %}"
)
tokenizer = AutoTokenizer.from_pretrained(source)
tokenizer.add_tokens([MARK, *reply])
tokenizer.chat_template = TEMPLATE
tokenizer.model_max_length = 8192
torch.manual_seed(1)
config = Qwen2Config(
    vocab_size=len(tokenizer),
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=8192,
    tie_word_embeddings=False,
    eos_token_id=tokenizer.eos_token_id,
    bos_token_id=None,
)
model = Qwen2ForCausalLM(config)
attention = model.model.layers[0].self_attn.o_proj.weight
torch.nn.init.zeros_(attention)
attention.requires_grad_(False)
ids = torch.tensor([[*tokenizer.convert_tokens_to_ids([MARK, *reply]), tokenizer.eos_token_id]])
optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
for _ in range(100):
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if loss.item() > 1e-2:
    sys.exit(f"the reply was not learned: loss {loss.item():.4f}")
model.save_pretrained(out)
tokenizer.save_pretrained(out)
# In the file of old, where every reader finds it.
settings = Path(out) / "tokenizer_config.json"
settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": TEMPLATE}))
