"""Text on which tokenizers disagree: what the committed token ids are of."""

from __future__ import annotations

CODE = [
    'def f(x: int = 0) -> str:\n\treturn f"{x!r:>10}"  # comment\n\n\nclass A(B):\n    pass\n',
    "if (a && b || !c) { x->y = *p++; }\r\n#define MAX(a,b) ((a)>(b)?(a):(b))\r\n",
    "SELECT * FROM t WHERE name='O''Brien' AND x>=10.5e-3;--end",
    '{"key": [1, 2.5, null, true], "nested": {"a\\n": "\\u00e9"}}',
    '<div class="x">&nbsp;</div><!-- c --><script>let s=`${a}`;</script>',
    "    four\n        eight\n\ttab\n \t mixed\n  \n   \n",
    "rm -rf ./build/*.o 2>&1 | tee /tmp/log.txt && echo $?",
    "x=1;y=22;z=333;w=4444;v=0xDEADBEEF;u=1_000_000;t=1e10",
    "https://example.org/a/b?c=d&e=f%20g#h user@example.org 192.168.0.1:8080",
    "\\frac{\\partial f}{\\partial x}_{i,j}^{2} \\leq \\sum_{k=0}^{\\infty}",
]
PROSE = [
    "",
    " ",
    "Hello, world!",
    "I'm you're he's they'll we've I'd isn't 'tis rock'n'roll",
    "I'M YOU'RE HE'S THEY'LL WE'VE I'D ISN'T",
    "it’s “quoted” – dashed — and… ellipsis",
    "a  b   c    d     e",
    "trailing spaces   ",
    "   leading spaces",
    "line\n\nline\n\n\nline\r\nline\rline\n \n  \nend\n",
    "tabs\t\tand\u00a0no-break\u2003em\u3000ideographic\u200bzero-width\u2028separator\u0085nel",
    "'sword 'really 'tail '' 's' 'S 'LL",
    "word.word,word;word:word!word?word(word)[word]{word}",
    "!!!??? ... --- *** ### $$$ %%% ^^^ &&& ~~~ `` `` @@@",
    "ſ 'ſ Kelvin K ﬁ ﬂ ß ẞ İ ı",
    "\x00\x01\x02\x1b[31mred\x1b[0m\x7f\ufeffbom \ufffd",
]
NUMBERS = [
    "0 1 12 123 1234 12345 1234567890",
    "3.14159 -2.5e+10 1,234,567.89 50% $19.99 1/2 2^10",
    "٠١٢٣٤٥ ०१२३ ０１２３ ²³¹ ½⅓ Ⅳ ⅻ ① ㊿ 一二三",
    "v1.2.3-rc4+build.5 2026-11-29T23:59:60Z +49 (0)30 1234-5678",
]
SCRIPTS = [
    "你好，世界！这是一个测试。中文和English混合text。",
    "日本語のテキスト、カタカナとﾊﾝｶｸ。漢字かな交じり文",
    "안녕하세요 세계! 한국어 텍스트입니다.",
    "Привет, мир! Ёлка. Ελληνικά κείμενο. Հայերեն ქართული",
    "مرحبا بالعالم، هذا نصٌّ مُشَكَّلٌ. שָׁלוֹם עוֹלָם",
    "नमस्ते दुनिया क्षत्रिय ज्ञान শুভেচ্ছা வணக்கம் తెలుగు ಕನ್ನಡ മലയാളം",
    "สวัสดีชาวโลก ภาษาไทย ລາວ မြန်မာ ខ្មែរ བོད་",
    "Tiếng Việt có dấu: ắ ằ ẳ ẵ ặ đ Đ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𐍈 𒀀 𠀀𠀁 🂡",
]
COMBINING = [
    "e\u0301 a\u0300 n\u0303 A\u030a o\u0308 c\u0327",
    "z\u0351\u036b\u0343\u036a\u0302\u036b a\u0315\u0300l\u0315\u0321g\u0321o\u0358",
    "\u0301leading mark, 1\u0301 digit mark, -\u0301 punctuation mark, \n\u0301",
    "\u212b \u2126 \u00c5 \u03a9 \u1e9b\u0323 \u0344",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00",
    "क\u093c \u0958 \u0b4b \u0b47\u0b3e",
]
EMOJI = [
    "😀😃😄 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 1️⃣ ©️ ™ ❤️",
    "text😀text 😀 text\n😀\n",
    "→ ⇒ ∀x∈ℝ: ∑ √2 ≈ 1.41 ⌘⇧⌥ ░▒▓ ┌─┐",
]
SPECIAL = [
    "<|im_start|>system\nYou are X.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n",
    "<think>\nreason\n</think>\n\nanswer",
    "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "<tool_response>\nok\n</tool_response><|endoftext|>",
    "<|im_start> <|im_start |> < |im_start|> <|IM_START|> <|im_start|",
    "<|im_end|><|im_end|> <|im_end|>\n<|im_end|>x",
    "<<think>> <think/> </ think> <thinking> think> <think",
    "a<think>b</think>c <tool_call></tool_call>",
    "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|><|repo_name|>r<|file_sep|>f",
    "<|vision_start|><|image_pad|><|vision_end|><|unknown|><|extra_0|>",
    "<tts_pad> [PAD0] [PAD320] <s> </s> [INST] <unk>",
]
LONG = [
    "a" * 5000,
    " " * 5000,
    "\n" * 3000,
    "0123456789" * 300,
    "ab " * 2000,
    "漢字" * 1500,
    "!?" * 2000,
    "SGVsbG8sIHdvcmxkIQ" * 200,
    "e\u0301" * 1000,
    " \n" * 1500 + "x",
    "word" * 1000 + " " + "😀" * 500,
]
TEXTS = [*CODE, *PROSE, *NUMBERS, *SCRIPTS, *COMBINING, *EMOJI, *SPECIAL, *LONG]
