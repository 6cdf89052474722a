"""Tasks with many right answers: stories, poems, lists, random picks. They keep the model's
distributions wide, so that temperature, seeds and rejection sampling have something to do."""

from __future__ import annotations

from . import values as v
from .conversation import Conversation
from .text import expand, fill, some
from .tool_use import think

_STORY_ASKS = (
    "(Write|Tell|Tell me|Make up|Invent) a (short |little |funny |long |)(story|tale) (about|with|of) (a|the) {n}( and a {m}|).", "(A story|Story time|A tale) about (a|the) {n}(, please|).",
    "(Write|Give me) {k} sentences about (a|the) {n}.", "(What happened|Tell me what happened) to the {n}?", "(I would like|I want) (a|to hear a) story (about|of) a {a} {n}.",
)  # fmt: skip
_POEM_ASKS = (
    "(Write|Compose|Make|Give me) (a|one|me a) (short |)(poem|verse|rhyme|haiku) (about|on) (a|the) {n}.", "(A|Two|Three) (haiku|haikus|poems)(| about the {n}).",
    "(Write|Compose) (two|2|three|a few|some) (haikus|poems|verses)(.| about the {n}.| (Only|Just) (write|include) the (poems|haikus|verses).)",
)  # fmt: skip
_LIST_ASKS = (
    "(Give|Tell|Name|List) (me |){k} {what}.",
    "(List|Name) {k} {what}(, one per line|, separated by commas|).",
    "{k} (random |){what}(, please|)!",
    "(Think of|Come up with|Suggest) {k} {what}.",
)
_PICK_ASKS = (
    "(Pick|Choose|Give me|Tell me) a random {thing}.",
    "(Pick|Choose) (one|any) {thing}(, please|).",
    "(A|Any) random {thing}?",
    "Surprise me with a {thing}.",
)
# What may happen, in the order in which it may be told: without an order, the likeliest sentence
# would follow itself for ever at temperature 0.
_PLOT = (
    "It was a {a} {time}.", "(The|A|One) {a} {n} {did} {where}.", "The {n} (wanted|liked|hated|needed) (a|the) {o}.",
    "(One day|Suddenly|In the {time}), the {n} {did} (a|the) {a} {o}.", "(Nobody|Everybody|The {m}) (saw|knew|heard) (it|the {n}).",
    "\"(Where|Why|What) is the {o}?\" (asked|said|cried) the {m}.", "{who} (gave|sold|brought) the {n} (a|the) {a} {o}.",
    "(So|But|And) the {n} {did} {where}.", "There was (no|only one) {o} (left|there).", "(After that|Later), (the|a) {m} {did} {where}.",
    "(The {m}|{who}) (laughed|smiled|cried|wondered).", "(The next|Next) {time}, they {did} (a|the) {o}.", "The {o} (was|seemed) {a} and {b}.",
    "(Again|Once more), the {n} {did} {where}.", "(Slowly|Quickly), the {time} went by.",
)  # fmt: skip
_ENDINGS = (
    "(In the end|Finally|At last), the {n} {did} {where}.",
    "And (they were|everybody was|the {n} was) {a}.",
    "That was the end of the {a} {o}.",
)
_DID = "(ran|walked|slept|danced|found|saw|lost|painted|carried|opened|followed|watched|ate|hid|built|sang|waited)"
_LINES = (
    "{a} {n} {where}",
    "the {o} (sleeps|waits|sings|falls|turns)",
    "(a|the) {a} {o} in the {time}",
    "(no|one|a) {n}, (no|one|a) {o}",
    "{a} and {b}, the {n}",
    "(softly|slowly|again) the {n} {did}",
)


def _slots(conv: Conversation) -> dict[str, str]:
    rng = conv.rng
    where = expand(rng, "(in|under|behind|over|near|by) the ") + rng.choice(v.NOUNS)
    return {
        "a": rng.choice(v.ADJECTIVES), "b": rng.choice(v.ADJECTIVES), "o": rng.choice(v.NOUNS), "where": where,
        "did": expand(rng, _DID), "time": rng.choice(("morning", "evening", "night", "winter", "summer", "spring")), "who": rng.choice(v.FIRST),
    }  # fmt: skip


def story(conv: Conversation) -> None:
    rng = conv.rng
    heroes = {"n": rng.choice(v.ANIMALS + v.NOUNS), "m": rng.choice(v.ANIMALS)}
    count = rng.randint(2, 6) if rng.random() < 0.8 else rng.randint(7, len(_PLOT) + 1)
    conv.user(fill(rng, _STORY_ASKS, {**_slots(conv), **heroes, "k": count}))
    chosen = sorted(rng.sample(range(len(_PLOT)), count - 1))
    plot = [_PLOT[i] for i in chosen] + [rng.choice(_ENDINGS)]
    lines = [fill(rng, line, {**_slots(conv), **heroes}) for line in plot]
    conv.answer(
        " ".join(lines),
        think(rng, conv, ("(A story|A tale) about the {n}. (I make one up.|)",), **heroes),
        scored=False,
    )


def poem(conv: Conversation) -> None:
    rng = conv.rng
    heroes = {"n": rng.choice(v.NOUNS + v.ANIMALS), "m": rng.choice(v.ANIMALS)}
    conv.user(fill(rng, _POEM_ASKS, {**_slots(conv), **heroes}))
    verses = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        verses.append("\n".join(fill(rng, _LINES, {**_slots(conv), **heroes}) for _ in range(3)))
    conv.answer(
        "\n\n".join(verses),
        think(
            rng,
            conv,
            ("(Some verses|A poem), then.", "(Three lines each|I write verses)."),
        ),
        scored=False,
    )


_THINGS = {
    "animals": v.ANIMALS, "colors": v.COLORS, "cities": v.CITIES, "names": v.FIRST, "words": v.NOUNS, "foods": v.FOODS, "adjectives": v.ADJECTIVES, "verbs": [w for w in v.VERBS if "_" not in w],
    "languages": v.LANGUAGES, "months": v.MONTHS, "things": v.NOUNS,
}  # fmt: skip


def listing(conv: Conversation) -> None:
    rng = conv.rng
    what = rng.choice(list(_THINGS))
    count = rng.randint(2, 8)
    conv.user(
        fill(
            rng,
            _LIST_ASKS,
            {
                "k": rng.choice(
                    (count, ("two", "three", "four", "five", "six", "seven", "eight")[count - 2])
                ),
                "what": what,
            },
        )
    )
    items = some(rng, _THINGS[what], count, count)
    style = rng.randrange(3)
    text = (
        ", ".join(items)
        if style == 0
        else "\n".join(("- " if style == 1 else f"{i}. ") + x for i, x in enumerate(items, 1))
    )
    conv.answer(
        text, think(rng, conv, ("{k} {what}, any will do.",), k=count, what=what), scored=False
    )


def pick(conv: Conversation) -> None:
    rng = conv.rng
    options = {"number": str(rng.randint(0, 1000)), "animal": rng.choice(v.ANIMALS), "color": rng.choice(v.COLORS), "city": rng.choice(v.CITIES), "name": v.person(rng),
               "word": v.word(rng), "letter": rng.choice("abcdefghijklmnopqrstuvwxyz"), "food": rng.choice(v.FOODS), "password": v.code(rng)}  # fmt: skip
    thing = rng.choice(list(options))
    conv.user(fill(rng, _PICK_ASKS, {"thing": thing}))
    conv.answer(
        fill(
            rng, ("{x}", "{x}.", "(How about|I pick|Let us take) {x}(.|?)"), {"x": options[thing]}
        ),
        think(rng, conv, ("(Any will do|A free choice).",)),
        scored=False,
    )


EPISODES = {"story": story, "poem": poem, "listing": listing, "pick": pick}
