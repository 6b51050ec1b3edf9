"""The texts that tokenizers are compared on: fixed ones, and some drawn with a fixed seed."""

import random

FIXED = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\n", " \n", "\n ", "\r\n", "\r\n\r\n", "\r",
    "a", " a", "a ", " a ", "  a", "a  b", "a   b", "a    b\n\n  c", "a\tb", "a\t\tb", "a \t b",
    "Hello", " Hello", "Hello world", "Hello, world!", "HELLO WORLD", "hElLo WoRlD", "Hello  World ",
    "The quick brown fox jumps over the lazy dog.",
    "It's what we'd said they'll do; I'm sure you've seen it, haven't you? She isn't.",
    "IT'S WHAT WE'D SAID THEY'LL DO; I'M SURE YOU'VE SEEN IT.",
    "'s 't 're 've 'm 'll 'd 'x '", "don''t", "rock 'n' roll", "o\u2019clock it\u2019s",
    "e.g. i.e. etc. ... \u2026 -- \u2014 \u2013", "(a) [b] {c} <d> \"e\" `f` 'g'", "!?!?!?", "........", "----------",
    "==========", "a.b.c.d", "http://example.com/a/b?c=d&e=f#g", "user.name+tag@example.org", "C:\\path\\to\\file",
    "/usr/local/bin", "snake_case_name", "camelCaseName", "SCREAMING_SNAKE", "kebab-case-name", "x86_64", "utf-8",
    "0", "1", "12", "123", "1234", "12345", "123456", "1234567", "12345678901234567890", " 1", " 12 345", "3.14159",
    "-1.5e-10", "1,000,000.00", "0x1F", "0b1010", "1/2", "50%", "$19.99", "\u20ac5", "2026-03-05T09:07:00Z", "10:30",
    "\u0661\u0662\u0663", "\u0967\u0968\u0969", "\u2160\u2161\u2162", "\u00bd \u00be \u00b2 \u00b3", "\u2460\u2461", "1st 2nd 3rd",
    "def f(x):\n    return x + 1\n", "fn main() {\n    println!(\"{}\", 1u32 << 3);\n}\n",
    "for (int i = 0; i < n; ++i) {\n\ta[i] = b[i] * 2;\n}", "#include <stdio.h>\n\nint main(void) { return 0; }",
    "SELECT * FROM t WHERE a = 'b' AND c IS NOT NULL;", "{\"a\": [1, 2.5, null, true], \"b\": {\"c\": \"d\"}}",
    "<html><body class=\"x\">&amp; &lt;</body></html>", "# Title\n\n- item\n  - nested\n\n```sh\nls -la\n```\n",
    "\\frac{a}{b} + \\sum_{i=0}^{n} x_i^2", "a && b || !c == d != e", "x := y; z <- w -> v => u", "/* c */ // d\n# e",
    "        deep indent\n            deeper\n", "key=value\nkey2=value2\n", "a;b;c\n1;2;3\n",
    "\u00c4pfel \u00fcber \u00d6sterreich, stra\u00dfe", "fran\u00e7ais: \u00e9t\u00e9, o\u00f9, \u0153uvre", "espa\u00f1ol \u00bfqu\u00e9? \u00a1s\u00ed!",
    "polski: za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144", "\u010desk\u00fd jazyk p\u0159\u00edli\u0161", "t\u00fcrk\u00e7e \u0130stanbul \u0131\u015f\u0131k",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u044f\u0437\u044b\u043a, \u043f\u0440\u0438\u0432\u0435\u0442!", "\u0423\u043a\u0440\u0430\u0457\u043d\u0441\u044c\u043a\u0430 \u043c\u043e\u0432\u0430", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03b3\u03bb\u03ce\u03c3\u03c3\u03b1",
    "\u05e2\u05d1\u05e8\u05d9\u05ea \u05e9\u05dc\u05d5\u05dd", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "\u0641\u0627\u0631\u0633\u06cc \u0633\u0644\u0627\u0645", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e",
    "\u09ac\u09be\u0982\u09b2\u09be", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22", "\u4e2d\u6587\uff0c\u4f60\u597d\uff01", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002", "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.", "ti\u1ebfng Vi\u1ec7t",
    "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", "\u0540\u0561\u0575\u0565\u0580\u0565\u0576", "\u12a0\u121b\u122d\u129b", "\U00010348\U00010330", "\u0f56\u0f7c\u0f51\u0f0b\u0f61\u0f72\u0f42",
    "\U0001f600", "\U0001f600\U0001f601\U0001f602", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "a\U0001f680b \U0001f680 c",
    "e\u0301 vs \u00e9", "n\u0303\u0303", "\u0301", "\u200b", "a\u200bb", "\ufeffbom", "\u00a0", "a\u00a0b", "a\u2003b\u2003\u2003c", "\u3000\u3000x", "\u2028\u2029",
    "\u00ad soft", "\u202eright\u202c", "\ufffd", "\ufffe", "\ue000 private", "\u0085next", "\u000b\u000c", "\u0000", "a\u0000b", "\u0001\u0002\u001b[0m", "\u007f",
    "\u212a\u017f 'S 's '\u017f", "\u01c5 \u02b0 \u00aa \u00ba", "\u2200x\u2208\u211d: x\u00b2\u22650", "\u2192\u2190\u2191\u2193 \u2500\u2502\u250c", "\u2581 block \u2581\u2581", "\u0120 \u010a \u0100",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "<|im_end|><|im_end|>", "x<|im_end|>y", " <|im_end|> ",
    "<|endoftext|>", "a<|endoftext|>b<|endoftext|>", "<|im_start", "im_start|>", "<|im_start|><|im_start|>", "<|unknown|>",
    "<s>hello</s>", "<unk>", "[INST] hi [/INST]", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<0x0A>", "<0xFF>x",
    "<repo_name>a/b<file_sep>c.py", "<fim_prefix>a<fim_suffix>b<fim_middle>", "<|fim_prefix|>a<|fim_suffix|>", "</s>", "<|file_sep|>", "<gh_stars>",
]

WORDS = (
    "the of and to in is was for on that with as it by from at his an were are which this be had not or have "
    "stage pipeline windlass Token tokenizer 42 7 1999 \u00fcber na\u00efve \u0441\u043b\u043e\u0432\u043e \u8a9e \U0001f9f5 -> :: != ( ) { } , . ; : ' \" \\ /"
).split()
SPACES = [" "] * 20 + ["  ", "   ", "\n", "\n\n", "\t", " \n", "\r\n", ""]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "aA1 ", " \n\t", "0123456789 .,", "\u00e4\u00f6\u00fc\u00df \u00e9\u00e8", "\u0430\u0431\u0432\u0433\u0434 ", "\u4e00\u4e8c\u4e09\u3042\u30a2 ", "\U0001f600\U0001f680\u2764\ufe0f\u200d ",
    "'sStTrReEvVmMlLdD ", "<|>im_startend ", "\u0301\u0303\u0939\u093f\u0902a ", "!\"#$%&()*+,-./:;<=>?@[]^_`{|}~ a1\n",
]


def texts(count: int) -> list:
    """`count` different texts, the fixed ones first."""
    drawn = random.Random(20260305)
    result = list(dict.fromkeys(FIXED))
    long = ["".join(drawn.choice(WORDS) + drawn.choice(SPACES) for _ in range(n)) for n in (400, 1500)]
    result += long + ["a" * 2000, " " * 500 + "x", "\n" * 300, "ab " * 700, "1" * 400]
    while len(result) < count:
        if drawn.random() < 0.5:
            text = "".join(drawn.choice(WORDS) + drawn.choice(SPACES) for _ in range(drawn.randrange(2, 30)))
        else:
            text = "".join(drawn.choice(drawn.choice(ALPHABETS)) for _ in range(drawn.randrange(1, 40)))
        if text not in result:
            result.append(text)
    return result
