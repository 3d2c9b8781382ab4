"""Makes a tiny model that writes one reply by heart, whatever it is asked: `judge_model.py TOKENIZER_FOLDER OUT_FOLDER REPLY`.

Two layers of Qwen2's shape with the tokenizer of configs/quickstart, trained for seconds on random questions.
"""

import json
import random
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}"
source, out, reply = sys.argv[1:4]
tokenizer = AutoTokenizer.from_pretrained(source)
tokenizer.chat_template = TEMPLATE
tokenizer.model_max_length = 4096
torch.manual_seed(1)
random.seed(1)
shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
config = Qwen2Config(
    vocab_size=len(tokenizer),
    num_key_value_heads=2,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
    eos_token_id=tokenizer.eos_token_id,
    bos_token_id=None,
    **shape,
)
model = Qwen2ForCausalLM(config)
opening = tokenizer.encode("\n<assistant>\n", add_special_tokens=False)
answer = tokenizer.encode(reply, add_special_tokens=False) + [tokenizer.eos_token_id]
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(400):
    noise = [[random.randrange(len(tokenizer)) for _ in range(random.choice((8, 32, 96)))] for _ in range(1)]
    length = len(noise[0])
    batch = [[random.randrange(len(tokenizer)) for _ in range(length)] + opening + answer for _ in range(16)]
    ids = torch.tensor(batch)
    labels = ids.clone()
    labels[:, : length + len(opening)] = -100
    loss = model(input_ids=ids, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss.item() < 1e-3:
        break
model.save_pretrained(out)
tokenizer.save_pretrained(out)
# In the file of old, where every reader finds it.
settings = Path(out) / "tokenizer_config.json"
settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": TEMPLATE}))
print(f"{step + 1} steps, loss {loss.item():.5f}", file=sys.stderr)
