#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rope.json: inverse frequencies and factors of transformers for configurations in published and re-saved spelling.

Usage: make_rope_golden.py OUT.json      (needs torch and transformers; versions are recorded in the file)
"""
import json
import struct
import sys

import torch
import transformers
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
CASES = {
    "default": (64, 8192, {"rope_theta": 100000.0}),
    "default_no_theta": (128, 4096, {}),
    "linear": (64, 4096, {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.5}}),
    "llama31": (128, 131072, {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}}),
    "llama32_resaved": (64, 131072, {"rope_parameters": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0,
        "original_max_position_embeddings": 8192}}),
    "llama3_no_original": (64, 2048, {"rope_theta": 10000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
    "top_level_original": (64, 8192, {"rope_theta": 10000.0, "original_max_position_embeddings": 1024, "rope_scaling": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 4096}}),
    "qwen_yarn": (128, 131072, {"rope_theta": 1000000.0, "rope_scaling": dict(YARN, original_max_position_embeddings=32768)}),
    "kimi_yarn": (64, 262144, {"rope_theta": 50000.0, "rope_scaling": {
        "type": "yarn", "factor": 64.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096}}),
    "yarn_two_mscales": (64, 16384, {"rope_theta": 10000.0, "rope_scaling": dict(YARN, mscale=0.707, mscale_all_dim=1.3)}),
    "yarn_zero_mscale": (64, 16384, {"rope_theta": 10000.0, "rope_scaling": dict(YARN, mscale=1.0, mscale_all_dim=0)}),
    "yarn_attention_factor": (64, 16384, {"rope_theta": 10000.0, "rope_scaling": dict(YARN, attention_factor=1.25)}),
    "yarn_no_truncate": (64, 16384, {"rope_theta": 150000.0, "rope_scaling": dict(YARN, truncate=False)}),
    "yarn_null_factor": (64, 16384, {"rope_theta": 10000.0, "rope_scaling": dict(YARN, factor=None)}),
    "yarn_null_betas": (64, 16384, {"rope_theta": 10000.0, "rope_scaling": dict(YARN, beta_fast=None, beta_slow=0)}),
    "yarn_beta_fast_1": (64, 16384, {"rope_theta": 50000.0, "rope_scaling": dict(YARN, beta_fast=1.0)}),
    "yarn_low_equals_high": (4, 16384, {"rope_theta": 10000.0, "rope_scaling": dict(YARN, original_max_position_embeddings=4)}),
    "scaling_replaces_parameters": (64, 4096, {
        "rope_theta": 777.0, "rope_parameters": {"rope_type": "linear", "factor": 9.0, "rope_theta": 5.0},
        "rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    "theta_inside_wins": (64, 4096, {"rope_theta": 777.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0, "rope_theta": 20000.0}}),
    "stale_type": (64, 4096, {"rope_parameters": {"rope_type": "default", "type": "linear", "factor": 3.0, "rope_theta": 20000.0}}),
    "empty_scaling": (64, 4096, {"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3000.0}}),
}


def bits(values):
    return [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]


def main():
    transformers.logging.set_verbosity_error()
    cases = {}
    for name, (dim, max_positions, keys) in CASES.items():
        config = LlamaConfig(hidden_size=dim, num_attention_heads=1, max_position_embeddings=max_positions, **json.loads(json.dumps(keys)))
        rotary = LlamaRotaryEmbedding(config)
        cases[name] = {"dim": dim, "max_position_embeddings": max_positions, "config": keys,
                       "inverse_frequency_bits": bits(rotary.inv_freq.tolist()), "scale": float(rotary.attention_scaling)}
    out = {"made_by": "make_rope_golden.py", "torch": torch.__version__, "transformers": transformers.__version__, "cases": cases}
    lines = [json.dumps(k) + ": " + json.dumps(v) for k, v in cases.items()]
    head = {k: v for k, v in out.items() if k != "cases"}
    with open(sys.argv[1], "w") as f:
        f.write(json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n")


main()
