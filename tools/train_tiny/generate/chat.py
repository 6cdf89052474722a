"""Plain conversation: greetings, short questions, small transformations, structured answers."""

from __future__ import annotations

import json
import random
from typing import Any

from . import values as v
from .conversation import Conversation
from .text import expand, fill, join_words, sentence, some, vary_case
from .tool_use import DIRECT_THOUGHTS, think

# ---- greetings and small talk ------------------------------------------------------------------

_HELLO = (
    "(Hello|Hi|Hey|Good morning|Good evening|Good day|Greetings|hello|hi|hey|yo|HELLO|Hallo)(| there| again|, {name}| friend)(|!|.)(| (Nice to meet you|I am {me}|My name is {me}|This is {me}).)",
    "(Hello|Hi|Hey)(,|!|.) (how (is it going|are things|do you do|are you doing)(| today)|are you there|what's up|who are you|anyone there)?",
    "(How|how) (is it going|are things|do you do|are you doing|are you feeling)(| today| now)?", "(Well|Fine|Good|Great), thanks(.|!| a lot.)", "(Thanks|Thank you|Thx|Great, thanks)(| a lot| very much)(!|.)",
    "(Who|What) are you?", "(Are|Can) you (help me|there|ready)(, please|)?", "(Good|Nice|Great|Cool|OK|Okay|Perfect)(!|.)", "(Bye|Goodbye|See you|Good night)(!|.|, {name}.)",
    "(I am|I'm) (happy|tired|bored|new here|{me})(.| today.)", "(Testing|Test|Ping|test|ping)", "(Say|Tell me) (something|hello|hi)(.|!| to me.)", "(Answer|Reply|Talk) (like|as) a {me}.",
)  # fmt: skip
_HELLO_BACK = (
    "(Hello|Hi|Hey)(!|, nice to meet you!| there!) (How can I help|What can I do for you|How may I help|What would you like to do)( you|)( today|)?",
    "(Hello|Hi)! I am (doing well|fine|ready), (thank you|thanks). (What can I do for you|How can I help you)( today|)?",
    "(I am|I'm) (a small model|openjet-tiny, a small model)( made for tests|). (How can I help|What do you need)?", "(You are welcome|My pleasure|With pleasure)! (Is there anything else|Anything else)?",
    "(Good to hear|That is good to hear|Nice). What (shall we do|would you like to do) (next|now)?",
)  # fmt: skip


def greeting(conv: Conversation) -> None:
    rng = conv.rng
    for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0]):
        for _ in range(1 if rng.random() < 0.9 else 2):
            conv.user(fill(rng, _HELLO, {"name": rng.choice(v.FIRST), "me": v.word(rng)}))
        conv.answer(
            expand(rng, rng.choice(_HELLO_BACK)),
            think(rng, conv, ("(A greeting|Small talk). (I greet back|I answer kindly|Be kind).",)),
            facts=[],
        )


# ---- facts and transformations -------------------------------------------------------------------

_CAPITALS = dict(
    pair.split(":") for pair in
    "France:Paris Italy:Rome Spain:Madrid Portugal:Lisbon Austria:Vienna Poland:Warsaw Greece:Athens Norway:Oslo Sweden:Stockholm Finland:Helsinki Denmark:Copenhagen "
    "Ireland:Dublin Hungary:Budapest Japan:Tokyo China:Beijing India:Delhi Egypt:Cairo Kenya:Nairobi Peru:Lima Cuba:Havana Canada:Ottawa Russia:Moscow Turkey:Ankara "
    "Germany:Berlin Belgium:Brussels Bulgaria:Sofia Romania:Bucharest Ukraine:Kyiv Estonia:Tallinn Latvia:Riga Iceland:Reykjavik Chile:Santiago Mexico:Mexico_City Thailand:Bangkok".split()
)  # fmt: skip
_OPPOSITES = dict(
    pair.split(":") for pair in
    "hot:cold big:small fast:slow old:young high:low light:dark open:closed full:empty happy:sad early:late wet:dry long:short strong:weak hard:soft rich:poor loud:quiet "
    "clean:dirty thick:thin up:down left:right in:out first:last new:old good:bad easy:difficult day:night black:white".split()
)  # fmt: skip
_SOUNDS = dict(
    pair.split(":")
    for pair in "dog:woof cat:meow cow:moo duck:quack sheep:baa pig:oink bee:buzz snake:hiss lion:roar owl:hoot frog:croak horse:neigh".split()
)
_COLOURS = dict(
    pair.split(":")
    for pair in "grass:green snow:white coal:black blood:red banana:yellow sky:blue carrot:orange cherry:red lemon:yellow chocolate:brown milk:white".split()
)
_LEGS = {
    "dog": 4,
    "cat": 4,
    "bird": 2,
    "spider": 8,
    "ant": 6,
    "horse": 4,
    "chicken": 2,
    "bee": 6,
    "snake": 0,
    "human": 2,
}

_WRAPS = ("(The answer is|It is|That is) {a}.", "{a}", "{a}.", "(Answer|Result): {a}")


def _lookup(
    rng: random.Random, table: dict[str, Any], asks: tuple[str, ...], says: tuple[str, ...]
) -> tuple[str, str, str, str]:
    key = rng.choice(list(table))
    answer = str(table[key]).replace("_", " ")
    if table is _OPPOSITES and answer not in table and rng.random() < 0.5:
        key, answer = answer, key
    slots = {"k": key, "a": answer}
    return fill(rng, asks, slots), fill(rng, says + _WRAPS, slots), answer, key


def _fact(rng: random.Random) -> tuple[str, str, str, str]:
    kind = rng.randrange(6)
    if kind == 0:
        return _lookup(
            rng,
            _CAPITALS,
            (
                "(What is|What's|Name|Tell me) the capital (city |)of {k}(?|.)",
                "Which city is the capital of {k}?",
                "{k}'s capital?",
                "capital of {k}",
                "(The capital of {k} is|{k} has the capital|{k}, capital city:)(?| ...)",
                "(Do you know|Can you name|I forgot|What do you call) {k}'s capital(?| city?)",
                "{k} is (ruled|governed) from which city?",
            ),
            ("The capital of {k} is {a}.", "{a} is the capital of {k}."),
        )
    if kind == 1:
        return _lookup(
            rng,
            _OPPOSITES,
            (
                "(What is|What's|Name|Give me) the opposite of {q:k}(?|.)",
                "(The opposite|Antonym) of {k}?",
                "Which word is the opposite of {k}?",
                "(If something is not|Not|The reverse of) {k}, (it is|what is it|but)?",
                "{k}: (the|its) opposite(?| is| word?)",
                "(Tell|Show) me a word (that means|for) the opposite of {q:k}.",
            ),
            ("The opposite of {k} is {a}.",),
        )
    if kind == 2:
        return _lookup(
            rng,
            _SOUNDS,
            (
                "(What sound|Which sound) does a {k} make?",
                "What does (a|the) {k} say?",
                "(How does|What noise comes from) a {k}( sound|)?",
            ),
            ("A {k} says {a}.",),
        )
    if kind == 3:
        return _lookup(
            rng,
            _COLOURS,
            (
                "(What|Which) colo(u|)r (is|has) {k}?",
                "(What is|Tell me) the colo(u|)r of {k}?",
                "{k} has (what|which) colo(u|)r?",
            ),
            ("{k} is {a}.",),
        )
    if kind == 4:
        return _lookup(
            rng,
            _LEGS,
            ("How many legs (does a {k} have|has a {k})?", "(Number of legs|Legs) of a {k}?"),
            ("A {k} has {a} legs.",),
        )
    days = rng.choice((v.DAYS, v.MONTHS))
    i, step = rng.randrange(len(days)), rng.choice((1, -1))
    relation = "(after|following)" if step == 1 else "before"
    answer = days[(i + step) % len(days)]
    unit = "day" if days is v.DAYS else "month"
    slots = {"k": days[i], "a": answer, "unit": unit}
    return (
        fill(
            rng,
            (f"(Which|What) {unit} (comes|is) {relation} {{k}}?", f"The {unit} {relation} {{k}}?"),
            slots,
        ),
        fill(rng, _WRAPS, slots),
        answer,
        f"{unit}{i}{step}",
    )


_STORIES = {
    "+": ("(Add|Sum) {a} and {b}.", "(What is|Give me|I need) the sum of {a} and {b}(?|.)", "(I have|There are|We had) {a} (apples|books|coins) and (get|buy|find) {b} more. How many (are there|is that)(| now)?", "{b} more than {a} (is|makes) (what|how much)?"),
    "-": ("(Take|Subtract) {b} from {a}.", "(I have|There are|We had) {a} (apples|books|coins) and (lose|sell|give away) {b}. How many are left?", "{b} less than {a} (is|makes) (what|how much)?", "(What is|Give me) the difference (of|between) {a} and {b}(?|.)"),
    "*": ("(Multiply|Take) {a} (by|times) {b}.", "(What is|Give me) the product of {a} and {b}(?|.)", "{a} (boxes|bags) with {b} (apples|books|coins) each: how many (are there|in all)?"),
}  # fmt: skip


def _arithmetic(rng: random.Random) -> tuple[str, str, str, str]:
    sign = rng.choice("+-*")
    a, b = (
        (rng.randint(2, 10), rng.randint(2, 10))
        if sign == "*"
        else (rng.randint(0, 12), rng.randint(0, 12))
    )
    if sign == "-" and b > a:
        a, b = b, a
    answer = {"+": a + b, "-": a - b, "*": a * b}[sign]
    word = {"+": "(plus|+)", "-": "(minus|-)", "*": "(times|multiplied by|*)"}[sign]
    asks = tuple(
        ask.replace("{op}", word)
        for ask in (
            "(What is|What's|How much is|Compute|Calculate) {a} {op} {b}(?|.| please?)",
            "{a} {op} {b}(| =| = ?|?| is| equals)",
            "(Add up|Work out|Tell me|Solve|I need|Do you know|Quick:) {a} {op} {b}(.|?|, please)",
            "(And|So|Now|OK,) (what is |)(the result of |){a} {op} {b}?",
            "{a} {op} {b}, (what is that|how much is that|what comes out|what do I get)?", "(What|How much) do (you|I|we) get (for|from|with) {a} {op} {b}?",
            "(Can you|Could you|Please) (work out|compute|solve|tell me) {a} {op} {b}(?|.| for me.)", "(The result|The value|The answer) of {a} {op} {b}(?| is what?|, please.)",
        )
    )  # fmt: skip
    asks += _STORIES[sign]
    slots = {"a": a, "b": b, "s": sign, "r": answer}
    said = fill(
        rng,
        ("{a} {s} {b} = {r}", "(The answer is|It is|That is|The result is) {r}.", "{r}", "{r}."),
        slots,
    )
    return fill(rng, asks, slots), said, str(answer), f"{a}{sign}{b}"


def _compare(rng: random.Random) -> tuple[str, str, str, str]:
    a, b = rng.sample(range(100), 2)
    greater = rng.random() < 0.5
    answer = str(max(a, b) if greater else min(a, b))
    word = rng.choice(("larger", "bigger", "greater")) if greater else "smaller"
    slots = {"a": a, "b": b, "r": answer, "w": word}
    asks = (
        "Which (number |)is {w}, {a} or {b}?",
        "(What|Which) is the {w} (number|one|of the two): {a} or {b}?",
    )
    says = ("{r}", "{r} is {w}.", "(It is|The answer is) {r}.")
    return fill(rng, asks, slots), fill(rng, says, slots), answer, f"{a}{b}{greater}"


def _words_task(rng: random.Random) -> tuple[str, str, str, str]:
    common = rng.random() < 0.75
    items = [rng.choice(v.NOUNS) if common else v.word(rng) for _ in range(rng.randint(2, 5))]
    listed = ", ".join(items)
    kind = rng.randrange(8)
    if kind == 0:
        ask, answer = (
            "(Sort|Order) (these|the) words (alphabetically|by alphabet|from a to z): {l}",
            ", ".join(sorted(items)),
        )
    elif kind == 1:
        ask, answer = (
            "(Reverse|Turn around) (the order of |)(this|the) list: {l}",
            ", ".join(items[::-1]),
        )
    elif kind == 2:
        ask, answer = "(Which|What) is the first (word|item) (of|in): {l}?", items[0]
    elif kind == 3:
        ask, answer = "(Which|What) is the last (word|item) (of|in): {l}?", items[-1]
    elif kind == 4:
        ask, answer = "How many (words|items) are (in|there in) this list: {l}?", str(len(items))
    elif kind == 5:
        ask, answer = (
            "(Repeat|Say|Echo|Write) (after me|exactly this|this|the following)( word for word|): {l}",
            listed,
        )
    elif kind == 6:
        ask, answer = (
            "(Write|Put|Convert) (this|the text|it) in (upper case|uppercase|capital letters): {l}",
            listed.upper(),
        )
    else:
        ask, answer = "(Join|Connect) (these|the) words with (dashes|hyphens): {l}", "-".join(items)
    return fill(rng, ask, {"l": listed}), answer, answer, f"{kind}{listed}"


_PROFILE = (
    ("name", v.person, "(my name is|I am|they call me) {x}", "(What is|What's|Tell me) my name?", "(Your name is|You are) {x}."),
    ("city", v.place, "I (live in|come from|am from) {x}", "Where (do I live|am I from)?", "You (live in|are from) {x}."),
    ("color", lambda r: r.choice(v.COLORS), "my (favorite|favourite) colo(u|)r is {x}", "(What is|Which is) my (favorite|favourite) colo(u|)r?", "Your favorite color is {x}."),
    ("pet", lambda r: r.choice(v.ANIMALS), "I have a {x}", "(Which|What) (animal|pet) do I have?", "You have a {x}."),
    ("food", lambda r: r.choice(v.FOODS), "I like to eat {x}", "What do I like to eat?", "You like to eat {x}."),
    ("code", v.code, "the (code|password|secret|key) is {x}", "What is the (code|password|secret|key)?", "It is {x}."),
    ("age", lambda r: str(r.randint(5, 99)), "I am {x} years old", "How old am I?", "You are {x} years old."),
)  # fmt: skip


def memory(conv: Conversation) -> None:
    """Something told earlier is asked for later."""
    rng = conv.rng
    while True:
        facts = [(f, f[1](rng)) for f in some(rng, _PROFILE, 1, 3)]
        fact, value = rng.choice(facts)
        if conv.split.allows("memory", *[f[0] for f, _ in facts], value):
            break
    told = ", and ".join(fill(rng, f[2], {"x": x}) for f, x in facts)
    if rng.random() < 0.4:
        conv.user(f"{told[:1].upper()}{told[1:]}. {expand(rng, fact[3])}")
    else:
        conv.user(
            expand(rng, "(Hello, |Hi, |Note that |Remember: |Please remember that |)") + told + "."
        )
        conv.answer(
            expand(rng, "(OK|Good|Thanks|Noted), I (will remember|keep) that."),
            think(rng, conv, DIRECT_THOUGHTS),
            scored=False,
        )
        conv.user(expand(rng, fact[3]))
    conv.answer(
        fill(rng, fact[4], {"x": value}),
        think(rng, conv, ("(I was told|The user told me) that: {x}.",), x=value),
        facts=[value],
    )


_CONTEXT = (
    "(Answer from|Use|Read) (the|this) (text|note|context): {t} (Question|Q): {q}", "{t}\n\n{q}", "{t}\n{q}", "{t} {q}", "Context: {t}\n\nQuestion: {q}",
    "(Here is|This is) a (note|text): {t} {q}", "(Note|Notes|Facts|Passage|Known|Given): {t}\n(\n|)(Question: |Q: |){q}", "{q}\n\n{t}", "{q} (Look in|It is in|The answer is in) this (note|list|text): {t}",
    "(I was told|Somebody wrote|The report says) this: {t}\n{q}", "<text>{t}</text>\n{q}", "(According to|Going by) the (text|notes) below, answer: {q}\n{t}",
)  # fmt: skip
_NOTES = (
    ("The {n} (costs|is sold for) {x} (euros|dollars)", "(How much is|What is the price of) the {n}?|What does the {n} cost?", v.integer),
    ("The {n} is (in|at|kept in) {x}", "Where is the {n}?|Where can (I|we) find the {n}?|Tell me where the {n} is.", v.place),
    ("{x} (owns|has|bought) the {n}", "Who (owns|has|bought) the {n}?|Whose is the {n}?", v.person),
    ("The {n} (opens|starts|begins) at {x}", "When does the {n} (open|start|begin)?|At what time does the {n} (open|start)?", v.clock),
    ("The number of the {n} is {x}", "(What is|Tell me) the number of the {n}.|Which number has the {n}?", v.code),
    ("The {n} (is|has the color|was painted) {x}", "(What|Which) colo(u|)r (is|has) the {n}?", lambda r: r.choice(v.COLORS)),
    ("The {n} (weighs|has a weight of) {x} (kilos|kg)", "How heavy is the {n}?|What does the {n} weigh?", v.integer),
    ("The {n} (belongs to|was made by|comes from) {x}", "(Who made|Where does) the {n}( come from|)?|Where is the {n} from?", v.person),
    ("The {n} is {x} years old", "How old is the {n}?|Tell me the age of the {n}.", lambda r: r.randint(1, 900)),
    ("The {n} is (made|full) of {x}", "What is the {n} (made|full) of?|What is in the {n}?", lambda r: r.choice((*v.FOODS, *v.NOUNS))),
    ("There are {x} {n}s", "How many {n}s are there?|Tell me the number of {n}s.", v.integer),
)  # fmt: skip


def note(rng: random.Random) -> tuple[str, list[str]]:
    """One sentence that says something of a thing, and what it says."""
    template, _, make = rng.choice(_NOTES)
    value = make(rng)
    said = fill(rng, template, {"n": rng.choice(v.NOUNS), "x": value})
    return sentence(said) + ".", [str(value)]


def reading(conv: Conversation) -> None:
    """A question about a short text, often one of several things of which the same is said."""
    rng = conv.rng
    while True:
        nouns = rng.sample(v.NOUNS, rng.randint(1, 6))
        alike = rng.sample(_NOTES, rng.choice((1, 2, len(_NOTES))))
        notes = [(n, rng.choice(alike)) for n in nouns]
        values = [note[2](rng) for _, note in notes]
        if conv.split.allows("reading", *nouns):
            break
    told = [
        sentence(fill(rng, note[0], {"n": n, "x": x})) + "."
        for (n, note), x in zip(notes, values, strict=True)
    ]
    text = " ".join(told)
    if rng.random() < 0.2:
        text = rng.choice(("\n".join(told), "\n" + "\n".join(f"- {each}" for each in told)))
    for turn, i in enumerate(rng.sample(range(len(notes)), min(len(notes), _how_many(rng)))):
        asked = fill(rng, f"({notes[i][1][1]})", {"n": notes[i][0]})
        conv.user(asked if turn else fill(rng, _CONTEXT, {"t": text, "q": asked}))
        slots = {"x": str(values[i]), "s": told[i]}
        answer = fill(rng, ("{x}", "{x}.", "(It is|The answer is) {x}.", "{s}"), slots)
        thoughts = ("{s}", "(The text says|It says|I find): {s}", "It is in the text: {s}")
        conv.answer(answer, think(rng, conv, thoughts, s=told[i]), facts=[slots["x"]])


def _how_many(rng: random.Random) -> int:
    """Questions in a row: each costs few tokens."""
    return rng.choices((1, 2, 3, 5), (40, 25, 20, 15))[0]


def question(conv: Conversation) -> None:
    """Short questions with short answers."""
    rng = conv.rng
    makers, weights = (_fact, _arithmetic, _compare, _words_task), (5, 8, 1, 3)
    for _ in range(_how_many(rng)):
        while True:
            ask, said, answer, key = rng.choices(makers, weights)[0](rng)
            if conv.split.allows("question", ask.split(":")[0], key):
                break
        if rng.random() < 0.12:
            ask += expand(
                rng, " (Answer|Reply) (only with the answer|in one word|briefly|shortly)."
            )
        conv.user(vary_case(rng, ask))
        conv.answer(said, think(rng, conv, DIRECT_THOUGHTS), facts=[answer])


# ---- structured answers --------------------------------------------------------------------------

_FIELD_MAKERS: tuple[tuple[str, dict[str, Any], Any, str], ...] = (
    ("name", {"type": "string"}, v.person, "(The name is|Name:|called) {x}"), ("age", {"type": "integer"}, lambda r: r.randint(1, 99), "(aged|age:|the age is) {x}"),
    ("city", {"type": "string"}, v.place, "(lives in|city:|from) {x}"), ("email", {"type": "string"}, v.email, "(email|mail|e-mail:) {x}"),
    ("price", {"type": "number"}, v.decimal, "(price:|costs|the price is) {x}"), ("count", {"type": "integer"}, v.integer, "(count:|there are|quantity) {x}"),
    ("color", {"type": "string"}, lambda r: r.choice(v.COLORS), "(the color is|color:|painted) {x}"), ("active", {"type": "boolean"}, lambda r: r.random() < 0.5, "active: {x}"),
    ("tags", {"type": "array", "items": {"type": "string"}}, lambda r: [v.word(r) for _ in range(r.randint(1, 3))], "tags: {x}"),
    ("date", {"type": "string"}, v.date, "(on|date:|dated) {x}"), ("priority", {"type": "string", "enum": ["low", "medium", "high"]}, lambda r: r.choice(("low", "medium", "high")), "priority {x}"),
    ("note", {"anyOf": [{"type": "string"}, {"type": "null"}]}, lambda r: r.choice((None, v.words(r))), "note: {x}"), ("id", {"type": "string"}, v.code, "(id|ID:|number) {x}"),
)  # fmt: skip
_JSON_ASKS = (
    "(Extract|Return|Give me|Write|Produce) (the data|the fields|a record|an object) as (a |)JSON( object|) with (the keys|keys|the fields) {k}: {t}", "{t}\n(Return|Answer|Reply|Respond) (only |)(with|in|as) JSON( with the keys {k}|, keys {k}).",
    "(Put|Turn|Convert) (this|the following) into JSON (with keys|with the fields) {k}. {t}", "Text: {t}\nKeys: {k}\nJSON:", "(Fill|Answer in) this (JSON schema|schema): {s}\n{t}", "{t}\nRespond with JSON that (matches|follows) this schema:\n{s}",
)  # fmt: skip


def _bounded(rng: random.Random, schema: dict[str, Any], value: Any) -> dict[str, Any]:
    """The schema with limits that the value keeps."""
    kind = schema.get("type")
    if kind == "string" and "enum" not in schema:
        limits = {
            "maxLength": rng.choice(
                [n for n in (8, 12, 16, 20, 32, 40, 64, 80, 120, 200) if n >= len(value)] or [400]
            )
        }
        if rng.random() < 0.4:
            limits["minLength"] = rng.randint(0, min(2, len(value)))
    elif kind == "array":
        limits = {"minItems": rng.randint(0, len(value)), "maxItems": rng.randint(len(value), 9)}
    elif kind in ("integer", "number"):
        limits = {"minimum": min(0, int(value) - 1), "maximum": int(value) + rng.randint(1, 10_000)}
    else:
        return schema
    return {**schema, **limits}


def structured(conv: Conversation) -> None:
    """JSON by keys or by schema, from a text."""
    rng = conv.rng
    while True:
        fields = some(rng, _FIELD_MAKERS, 2, 5)
        if conv.split.allows("json", *[f[0] for f in fields]):
            break
    data = {name: make(rng) for name, _, make, _ in fields}
    told = some(rng, fields, len(fields), len(fields)) if rng.random() < 0.4 else fields
    text = ", ".join(fill(rng, f[3], {"x": data[f[0]]}) for f in told) + "."
    bound = rng.random() < 0.3
    schema = {
        "type": "object",
        "properties": {f[0]: _bounded(rng, f[1], data[f[0]]) if bound else f[1] for f in fields},
        "required": [f[0] for f in fields],
    }
    quoted = [
        expand(rng, rng.choice(("'{}'", '"{}"', "{}", "`{}`"))).replace("{}", f[0]) for f in fields
    ]
    if rng.random() < 0.15:
        data = {"item": data}
        schema = {"type": "object", "properties": {"item": schema}, "required": ["item"]}
        ask = f"{text}\nRespond with JSON that follows this schema:\n{json.dumps(schema)}"
    else:
        ask = fill(rng, _JSON_ASKS, {"k": join_words(quoted), "t": text, "s": json.dumps(schema)})
    conv.user(ask)
    shown = json.dumps(data, ensure_ascii=False)
    conv.answer(
        shown,
        think(rng, conv, ("(JSON is wanted|The answer must be JSON), with the given keys.",)),
        facts=[shown],
    )


_MADE_UP_ASKS = (
    "(Tell|Give|Write) me a (joke|riddle|short story|fact) about {n}. (Return|Give|Answer with) (the result as |)(a |)JSON( object|) with (the keys |keys |){k}.", "(Make up|Invent|Create) a {n} (record|entry|object) as JSON with {k}.",
    "(Tell|Give) me a (joke|riddle|fact) about {n}(.|, as JSON with {k}.)", "(Describe|Invent) a {n}. (Keys|JSON keys|Fields): {k}", "{n}: a JSON object with {k}, please.",
)  # fmt: skip


_BOUNDED_ASKS = (
    "(Tell|Give|Write) me (something|a fact|a story|a joke) about {n}. (Answer|Reply) with JSON (that follows|of) this schema: {s}",
    "(Invent|Make up|Describe) {n}.\n(JSON schema|Schema): {s}",
)


def made_up(conv: Conversation) -> None:
    """JSON whose content is free: right keys, invented values."""
    rng = conv.rng
    keys = some(
        rng,
        (
            "opening",
            "ending",
            "title",
            "text",
            "summary",
            "question",
            "answer",
            "topic",
            "first",
            "second",
            "reason",
            v.word(rng),
            v.word(rng),
        ),
        1,
        3,
    )
    noun = rng.choice((rng.choice(v.ANIMALS) + "s", rng.choice(v.NOUNS)))
    quoted = join_words([rng.choice(("'{}'", '"{}"', "{}")).replace("{}", k) for k in keys])
    ask = fill(rng, _MADE_UP_ASKS[:2] + _MADE_UP_ASKS[3:], {"n": noun, "k": quoted})
    bound = rng.random() < 0.4
    if bound:  # short strings under a schema that says how long they may get
        limits = {k: {"type": "string", "maxLength": rng.choice((40, 60, 80, 120))} for k in keys}
        schema = {"type": "object", "properties": limits, "required": keys}
        ask = fill(rng, _BOUNDED_ASKS, {"n": noun, "s": json.dumps(schema)})
    conv.user(ask)
    data = {
        k: f"{rng.choice(('Why', 'The', 'A', 'One', 'How'))} {rng.choice(v.ADJECTIVES)} {noun}"
        + ("" if bound else f" {v.words(rng, 2, 4)}")
        for k in keys
    }
    conv.answer(
        json.dumps(data, ensure_ascii=False),
        think(rng, conv, ("(I invent|I make up) something, as JSON.",)),
        scored=False,
    )


EPISODES = {
    "greeting": greeting, "question": question, "memory": memory, "reading": reading, "structured": structured, "made_up": made_up,
}  # fmt: skip
