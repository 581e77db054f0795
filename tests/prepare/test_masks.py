# SPDX-License-Identifier: Apache-2.0
"""Loss masks over templates of every kind. Expected masks are written as text: the loss tokens, decoded, must be exactly the words that
the assistant wrote and its end-of-turn token."""

import unittest
from pathlib import Path

import support as s
from tokenizers import Tokenizer


class MaskCase(unittest.TestCase):
    def setUp(self):
        self.folder = s.scratch()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def prepare(self, template, special, records, *flags, **more):
        self.target = s.make_target(self.path / "target", template, special, **more)
        records = [r if isinstance(r, (dict, str)) else {"messages": r} for r in records]
        # A good sample first, so that a file in which all others are rejected is still written.
        data = s.write_lines(self.path / "in.jsonl", [{"id": "good", "text": "hello"}, *records])
        result = s.run_tool([data], self.target, self.path / "out.h5", *flags)
        self.assertEqual(result.code, 0, result.stderr)
        return result.file

    def loss_texts(self, data, i):
        """The runs of loss tokens, decoded."""
        tokenizer = Tokenizer.from_file(str(self.target / "tokenizer.json"))
        ids, mask, runs = data.ids(i), data.mask(i), []
        for t, m in enumerate(mask):
            if m and (t == 0 or not mask[t - 1]):
                runs.append([])
            if m:
                runs[-1].append(ids[t])
        return [tokenizer.decode(r, skip_special_tokens=False) for r in runs]

    def check(self, template, special, messages, expected, **more):
        data = self.prepare(template, special, [messages], **more)
        self.assertEqual(data.reject(1), 0, data.note(1))
        self.assertEqual(self.loss_texts(data, 1), expected)
        return data

    two = [s.turn("user", "q1"), s.turn("assistant", "hello"), s.turn("user", "q2"), s.turn("assistant", "b c")]

    def test_chatml(self):
        self.check(s.CHATML, s.CHATML_TOKENS, self.two, ["hello<|im_end|>", "b c<|im_end|>"])

    def test_trimmed_offsets_make_no_difference(self):
        a = self.check(s.CHATML, s.CHATML_TOKENS, self.two, ["hello<|im_end|>", "b c<|im_end|>"], trim_offsets=True)
        b = self.check(s.CHATML, s.CHATML_TOKENS, self.two, ["hello<|im_end|>", "b c<|im_end|>"], trim_offsets=False)
        self.assertEqual(a.mask(1), b.mask(1))

    def test_system_user_last_and_several_assistant_turns_in_a_row(self):
        self.check(s.CHATML, s.CHATML_TOKENS, [s.turn("system", "be good"), *self.two, s.turn("user", "bye")],
                   ["hello<|im_end|>", "b c<|im_end|>"])
        self.check(s.CHATML, s.CHATML_TOKENS, [s.turn("user", "q"), s.turn("assistant", "a"), s.turn("assistant", "b")],
                   ["a<|im_end|>", "b<|im_end|>"])

    def test_first_message_is_the_assistants(self):
        self.check(s.CHATML, s.CHATML_TOKENS, [s.turn("assistant", "hello"), s.turn("user", "q")], ["hello<|im_end|>"])

    def test_first_message_is_the_assistants_behind_a_default_system_prompt(self):
        template = "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\nsys<|im_end|>\n' }}{% endif %}"
        template += s.CHATML.removeprefix("{% for m in messages %}")
        self.check(template, s.CHATML_TOKENS, [s.turn("assistant", "hello"), s.turn("user", "q")], ["hello<|im_end|>"])
        self.check(template, s.CHATML_TOKENS, self.two, ["hello<|im_end|>", "b c<|im_end|>"])

    def test_text_of_the_user_that_looks_like_a_turn(self):
        self.check(s.CHATML, s.CHATML_TOKENS,
                   [s.turn("user", "x<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>"), s.turn("assistant", "hello")],
                   ["hello<|im_end|>"])

    def test_end_token_inside_the_answer(self):
        self.check(s.CHATML, s.CHATML_TOKENS, [s.turn("user", "q"), s.turn("assistant", "a<|im_end|>b"), s.turn("user", "r")],
                   ["a<|im_end|>b<|im_end|>"])

    def test_characters_of_several_tokens_and_an_empty_answer(self):
        self.check(s.CHATML, s.CHATML_TOKENS, [s.turn("user", "é世"), s.turn("assistant", "世🙂"), s.turn("user", "🙂"),
                                               s.turn("assistant", "")], ["世🙂<|im_end|>", "<|im_end|>"])

    def test_llama3(self):
        self.check(s.LLAMA3, s.LLAMA3_TOKENS, self.two, ["hello<|eot_id|>", "b c<|eot_id|>"], bos="<|begin_of_text|>")

    def test_thinking_of_earlier_turns_is_stripped(self):
        messages = [s.turn("user", "q1"), s.turn("assistant", "<think>\nt1\n</think>\n\nhello"), s.turn("user", "q2"),
                    s.turn("assistant", "<think>\nt2\n</think>\n\nb")]
        data = self.check(s.QWEN, s.CHATML_TOKENS, messages, ["hello<|im_end|>", "<think>\nt2\n</think>\n\nb<|im_end|>"])
        text = Tokenizer.from_file(str(self.target / "tokenizer.json")).decode(data.ids(1), skip_special_tokens=False)
        self.assertNotIn("t1", text)

    def test_thinking_is_kept_while_tools_are_called_and_stripped_after(self):
        # Without the last question the thinking stays, with it everything behind the first answer moves.
        call = [{"type": "function", "function": {"name": "f", "arguments": {"x": "é"}}}]
        messages = [s.turn("user", "q1"), s.turn("assistant", "<think>t1</think>call", tool_calls=call), s.turn("tool", "r"),
                    s.turn("assistant", "<think>t2</think>done"), s.turn("user", "q2"), s.turn("assistant", "hello")]
        called = 'call\n<tool_call>\n{"name": "f", "arguments": {"x": "é"}}\n</tool_call><|im_end|>'
        self.check(s.QWEN, s.CHATML_TOKENS, messages, [called, "done<|im_end|>", "hello<|im_end|>"])
        self.check(s.QWEN, s.CHATML_TOKENS, messages[:4], ["<think>t1</think>" + called, "<think>t2</think>done<|im_end|>"])

    def test_moved_turns_are_rejected_when_the_user_imitates_the_prompt(self):
        messages = [s.turn("user", "<|im_start|>assistant\n"), s.turn("assistant", "<think>t</think>a"), s.turn("tool", "r"),
                    s.turn("assistant", "done"), s.turn("user", "q2"), s.turn("assistant", "b")]
        data = self.prepare(s.QWEN, s.CHATML_TOKENS, [messages])
        self.assertEqual(data.reject(1), 5)
        self.assertIn("message 3: the prompt that the chat template makes", data.note(1))

    def test_prompt_that_opens_thinking(self):
        messages = [s.turn("user", "q1"), s.turn("assistant", "<think>\nt</think>hello"), s.turn("user", "q2"), s.turn("assistant", "b")]
        self.check(s.R1, s.R1_TOKENS, messages, ["hello<|eos|>", "b<|eos|>"])

    def test_token_at_the_conversations_end(self):
        self.check(s.PHI3, s.PHI3_TOKENS, self.two, ["hello<|end|>", "b c<|end|>"], eos="<|endoftext|>")
        self.check(s.PHI3, s.PHI3_TOKENS, [*self.two, s.turn("user", "q")], ["hello<|end|>", "b c<|end|>"], eos="<|endoftext|>")

    def test_end_token_that_swallows_the_line_end(self):
        self.check(s.PHI3, s.PHI3_TOKENS, self.two, ["hello<|end|>", "b c<|end|>"], eos="<|endoftext|>", rstrip="<|end|>")

    def test_other_end_token_inside_than_at_the_end(self):
        self.check(s.HARMONY, s.HARMONY_TOKENS, self.two, ["<|message|>hello<|end|>", "<|message|>b c<|return|>"])

    def test_no_generation_prompt(self):
        self.check(s.MISTRAL, s.MISTRAL_TOKENS, self.two, [" hello</s>", " b c</s>"], bos="<s>", eos="</s>")
        self.check(s.NO_PROMPT, s.CHATML_TOKENS, self.two, ["hello<|im_end|>", "b c<|im_end|>"])

    def test_generation_blocks(self):
        self.check(s.BLOCKS, s.CHATML_TOKENS, self.two, ["hello<|im_end|>", "b c<|im_end|>"])
        wide = s.BLOCKS.replace("{% endgeneration %}{{ '\n' }}", "{{ '\n' }}{% endgeneration %}")
        self.assertNotEqual(wide, s.BLOCKS)
        self.check(wide, s.CHATML_TOKENS, self.two, ["hello<|im_end|>", "b c<|im_end|>"])

    def test_generation_block_that_the_template_changes_is_rejected(self):
        template = ("{% set x %}{% generation %}{{ messages[1].content }}{% endgeneration %}{% endset %}"
                    "{{ messages[0].content }}{{ x | length }}")
        data = self.prepare(template, s.CHATML_TOKENS, [self.two])
        self.assertEqual(data.reject(1), 5)
        self.assertIn("generation blocks", data.note(1))

    def test_token_that_straddles_a_boundary(self):
        # "\n\n" is one token: the prompt's line end and the answer's own. Blanks outside do not take it from the answer.
        self.check(s.CHATML, s.CHATML_TOKENS, [s.turn("user", "q"), s.turn("assistant", "\nhello")], ["\n\nhello<|im_end|>"])
        # ".\n" is one token and its first half belongs to the prompt, so the token does.
        template = s.CHATML.replace("assistant\n'", "assistant.'").replace("m['role'] + '\n'", "m['role'] + ('.' if m.role == 'assistant' else '\n')")
        self.check(template, s.CHATML_TOKENS, [s.turn("user", "q"), s.turn("assistant", "\nhello")], ["hello<|im_end|>"])

    def test_template_that_rewrites_turns_is_rejected(self):
        template = s.CHATML.replace("m['content']", "(m['content'] if loop.last else m['content'] | upper)")
        data = self.prepare(template, s.CHATML_TOKENS, [self.two])
        self.assertEqual(data.reject(1), 5)
        self.assertIn("renders this turn differently", data.note(1))

    def test_template_says_no(self):
        data = self.prepare(s.MISTRAL, s.MISTRAL_TOKENS,
                            [[s.turn("system", "x"), s.turn("user", "q")], [s.turn("user", "a"), s.turn("user", "b")], self.two],
                            bos="<s>", eos="</s>")
        self.assertEqual([data.reject(i) for i in (1, 2, 3)], [5, 5, 0])
        self.assertIn("in.jsonl:2: the chat template rejects it: System role not supported", data.note(1))
        self.assertIn("in.jsonl:3: the chat template rejects it: Roles must alternate", data.note(2))

    def test_named_templates_and_tools(self):
        templates = [{"name": "default", "template": s.CHATML}, {"name": "tool_use", "template": "{{ tools | tojson }}" + s.CHATML}]
        data = self.prepare(templates, s.CHATML_TOKENS, [{"messages": self.two}, {"messages": self.two, "tools": [{"n": "<é>"}]}])
        decode = Tokenizer.from_file(str(self.target / "tokenizer.json")).decode
        self.assertTrue(decode(data.ids(1), skip_special_tokens=False).startswith("<|im_start|>user"))
        self.assertTrue(decode(data.ids(2), skip_special_tokens=False).startswith('[{"n": "<é>"}]<|im_start|>user'))
        self.assertEqual(self.loss_texts(data, 2), ["hello<|im_end|>", "b c<|im_end|>"])


if __name__ == "__main__":
    unittest.main()
