# SPDX-License-Identifier: Apache-2.0
"""Token ids and masks against transformers' apply_chat_template, on the synthetic templates and, where AERIE_SMOLLM2 names a folder with
its tokenizer, on SmolLM2 with the conversations of examples/smol."""

import gzip
import json
import os
import unittest
from pathlib import Path

import support as s

try:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import PreTrainedTokenizerFast
except ImportError:
    PreTrainedTokenizerFast = None

TURNS = [
    [s.turn("user", "q1 é"), s.turn("assistant", "hello world")],
    [s.turn("user", "q1"), s.turn("assistant", "世界🙂\n\n a."), s.turn("user", "q2\n"), s.turn("assistant", "b  c \n")],
    [s.turn("user", " "), s.turn("assistant", "hello.\nhell a a")],
]
SMOLLM2 = os.environ.get("AERIE_SMOLLM2", "")


@unittest.skipIf(PreTrainedTokenizerFast is None, "transformers is not installed")
class AgainstTransformers(unittest.TestCase):
    def setUp(self):
        folder = s.scratch()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name)

    def prepare(self, target, conversations):
        data = s.write_lines(self.path / "in.jsonl", [{"messages": c} for c in conversations])
        result = s.run_tool([data], target, self.path / "out.h5")
        self.assertEqual(result.code, 0, result.stderr)
        return result.file

    @staticmethod
    def load(target):
        return PreTrainedTokenizerFast.from_pretrained(str(target))

    def test_token_ids(self):
        for name, template, special, more in (
            ("chatml", s.CHATML, s.CHATML_TOKENS, {}), ("qwen", s.QWEN, s.CHATML_TOKENS, {}), ("blocks", s.BLOCKS, s.CHATML_TOKENS, {}),
            ("llama3", s.LLAMA3, s.LLAMA3_TOKENS, {"bos": "<|begin_of_text|>"}), ("phi3", s.PHI3, s.PHI3_TOKENS, {"eos": "<|endoftext|>"}),
            ("mistral", s.MISTRAL, s.MISTRAL_TOKENS, {"bos": "<s>", "eos": "</s>"}), ("harmony", s.HARMONY, s.HARMONY_TOKENS, {}),
        ):
            target = s.make_target(self.path / name, template, special, **more)
            d, tokenizer = self.prepare(target, TURNS), self.load(target)
            for i, messages in enumerate(TURNS):
                self.assertEqual(d.ids(i), tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"], (name, i))

    def test_masks_of_generation_blocks(self):
        target = s.make_target(self.path / "target", s.BLOCKS, s.CHATML_TOKENS)
        d, tokenizer = self.prepare(target, TURNS), self.load(target)
        for i, messages in enumerate(TURNS):
            expected = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            self.assertEqual(d.mask(i), list(expected["assistant_masks"]), i)
            self.assertIn(1, d.mask(i))

    @unittest.skipUnless(SMOLLM2, "AERIE_SMOLLM2 names no folder")
    def test_smollm2(self):
        """Ids as transformers makes them; the mask as it makes it once the same template is written with {% generation %}."""
        with gzip.open(s.ROOT / "examples" / "smol" / "train.jsonl.gz", "rt", encoding="utf-8") as f:
            conversations = [json.loads(line)["messages"] for line in f]
        conversations += [[s.turn("system", "be good"), *conversations[0], s.turn("user", "bye")], [s.turn("assistant", "hello"), *TURNS[1]]]
        d, tokenizer = self.prepare(Path(SMOLLM2), conversations), self.load(SMOLLM2)
        body = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
        self.assertIn(body, tokenizer.chat_template)
        marked = tokenizer.chat_template.replace(body, (
            "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}{% generation %}{{message['content'] + "
            "'<|im_end|>'}}{% endgeneration %}{% else %}{{message['content'] + '<|im_end|>'}}{% endif %}{{'\n'}}"))
        for i, messages in enumerate(conversations):
            expected = tokenizer.apply_chat_template(messages, chat_template=marked, tokenize=True, return_dict=True,
                                                     return_assistant_tokens_mask=True)
            self.assertEqual(d.ids(i), expected["input_ids"], i)
            self.assertEqual(d.mask(i), list(expected["assistant_masks"]), i)


if __name__ == "__main__":
    unittest.main()
