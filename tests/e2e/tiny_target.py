# SPDX-License-Identifier: Apache-2.0
"""A target that runs in milliseconds: a random Llama of 8 layers, a byte-level tokenizer without merges, ChatML conversations.

Written by hand with the standard library, so that nothing of aerie and nothing of its peers takes part in making the input. Everything
is a function of the seed.
"""
import array
import gzip
import json
import os
import random

LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, VOCAB = 8, 64, 96, 4, 2, 272
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def tensor_shapes():
    head = HIDDEN // HEADS
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN], "lm_head.weight": [VOCAB, HIDDEN]}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        shapes |= {
            p + "input_layernorm.weight": [HIDDEN], p + "post_attention_layernorm.weight": [HIDDEN],
            p + "self_attn.q_proj.weight": [HEADS * head, HIDDEN], p + "self_attn.k_proj.weight": [KV_HEADS * head, HIDDEN],
            p + "self_attn.v_proj.weight": [KV_HEADS * head, HIDDEN], p + "self_attn.o_proj.weight": [HIDDEN, HEADS * head],
            p + "mlp.gate_proj.weight": [INTERMEDIATE, HIDDEN], p + "mlp.up_proj.weight": [INTERMEDIATE, HIDDEN],
            p + "mlp.down_proj.weight": [HIDDEN, INTERMEDIATE],
        }
    return shapes


def tensor_values(name, shape, rng):
    """Norms around 1, matrices N(0, 1/in), so that a wrong layer or a missing norm shows."""
    if len(shape) == 1:
        return array.array("f", (1 + 0.2 * rng.gauss(0, 1) for _ in range(shape[0])))
    scale = 1.0 if "embed" in name else shape[1] ** -0.5
    return array.array("f", (scale * rng.gauss(0, 1) for _ in range(shape[0] * shape[1])))


def write_safetensors(path, tensors):
    """{name: (shape, array of float32)} -> a safetensors file."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, values) in tensors.items():
        end = offset + 4 * len(values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(len(raw).to_bytes(8, "little") + raw)
        for _, values in tensors.values():
            f.write(values.tobytes())


def byte_characters():
    """The characters that byte-level BPE writes for the bytes 0..255: printable Latin-1 as itself, the rest from U+0100 on."""
    as_itself = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 0
    for b in range(256):
        table[b] = chr(b) if b in as_itself else chr(0x100 + extra)
        extra += b not in as_itself
    return table


def tokenizer():
    characters = byte_characters()
    vocab = {token: i for i, token in enumerate(SPECIAL)}
    vocab |= {characters[b]: len(SPECIAL) + b for b in range(256)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True} for i, t in enumerate(SPECIAL)],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []},
    }


def write_target(folder, seed=7, infinite=b"", chat_template=CHAT_TEMPLATE):
    """`infinite`: bytes whose embedding row holds an Inf, so that every sample with one of them comes out non-finite."""
    os.makedirs(folder)
    rng = random.Random(seed)
    tensors = {name: (shape, tensor_values(name, shape, rng)) for name, shape in tensor_shapes().items()}
    for byte in infinite:
        tensors["model.embed_tokens.weight"][1][(len(SPECIAL) + byte) * HIDDEN] = float("inf")
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    content = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HIDDEN // HEADS,
            "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "max_position_embeddings": 2048,
            "vocab_size": VOCAB, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "float32",
            "bos_token_id": 1, "eos_token_id": 2},
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": chat_template,
                                  "bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "model_max_length": 2048},
    }
    for name, value in content.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False)


def conversation(rng, name):
    """One to three rounds of uneven length, so that packs, parts and ranks never divide evenly; some bytes are not ASCII."""
    words = "the a model draft token näve step rank store layer loss mask head norm 7 42 ok?".split()
    text = lambda low, high: " ".join(rng.choice(words) for _ in range(rng.randint(low, high)))  # noqa: E731
    messages = []
    for _ in range(rng.randint(1, 3)):
        messages += [{"role": "user", "content": text(1, 8)}, {"role": "assistant", "content": text(2, 18)}]
    return {"id": name, "messages": messages}


def write_conversations(path, count, seed):
    rng = random.Random(seed)
    with gzip.open(path, "wt", encoding="utf-8") as f:
        for i in range(count):
            f.write(json.dumps(conversation(rng, f"tiny-{seed}-{i:03d}")) + "\n")
