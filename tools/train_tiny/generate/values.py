"""Names, places, numbers, codes and words in many scripts: what gets copied around."""

from __future__ import annotations

import random
import string

FIRST = (
    "Ada Alan Alice Amir Ana Anton Aiko Ben Bea Boris Carla Chen Clara Daniel Dana Diego Elena Emil "
    "Eva Farid Felix Fiona Gita Grace Hana Hugo Ines Ivan Jana Jonas Julia Kai Karim Kofi Lara Leo "
    "Lena Lucas Maja Marco Mei Mila Nadia Nina Noah Olga Omar Otto Paula Pedro Petra Priya Rosa "
    "Ravi Sara Sofia Stefan Tariq Tessa Tom Uma Vera Viktor Wei Yara Yusuf Zoe"
).split()
LAST = (
    "Abbott Adler Alvarez Baker Becker Bianchi Brandt Chandra Cohen Costa Dubois Eriksen Fischer "
    "Garcia Haddad Hansen Ito Jensen Keller Kim Kowalski Larsen Lopez Meyer Moreau Nakamura Novak "
    "Okafor Patel Petrov Quinn Rossi Santos Schmidt Singh Stone Tanaka Torres Vogel Walker Weber Yilmaz"
).split()
CITIES = (
    "Amsterdam Ankara Athens Austin Bergen Berlin Bogota Boston Bremen Cairo Chicago Dakar Delhi "
    "Denver Dublin Geneva Hamburg Hanoi Helsinki Istanbul Jakarta Kyoto Lagos Leeds Lima Lisbon "
    "London Lyon Madrid Manila Miami Milan Mumbai Munich Nairobi Naples Osaka Oslo Ottawa Paris "
    "Porto Prague Quito Riga Rome Seattle Seoul Sofia Sydney Tallinn Tokyo Toronto Turin Vienna "
    "Vilnius Warsaw Zagreb Zurich New_York Los_Angeles Cape_Town Buenos_Aires Hong_Kong Santa_Cruz "
    "San_Diego St._Louis Rio_de_Janeiro Salt_Lake_City"
).split()
CITIES = [city.replace("_", " ") for city in CITIES]
STATES = "AL AZ CA CO FL GA IL MA MI MN NC NV NY OH OR PA TX UT VA WA".split()
NOUNS = (
    "account alarm album answer apple archive arrow balance banana basket battery bench bicycle "
    "bill blanket board boat book bottle bridge bucket budget button cable calendar camera candle "
    "card carpet castle chair channel chart cheese circle clock cloud coffee coin contract cookie "
    "corner curtain customer desk device dictionary doctor document door drawer dream engine "
    "envelope event farm feather field file flag flower folder forest fork garden gate glass glove "
    "goal guitar hammer harbor hat house image invoice island item jacket journal key kitchen "
    "ladder lake lamp leaf lemon letter library license light list lock machine magnet mango map "
    "market meeting member memory message meter mirror model moon mountain napkin needle network "
    "note number ocean office onion order package paint paper parcel password payment pencil "
    "phone photo piano picture pillow pipe plan planet plate pocket point pond price printer "
    "profile project queue radio railway rain recipe record report ring river road robot roof room "
    "rope route ruler sail schedule school score screen seed sensor server shelf ship shoe signal "
    "sock song spoon stamp star station stone story street sugar table task teapot temple tent "
    "ticket tiger timer token tool tower towel train tree truck tunnel umbrella user valley "
    "vehicle village violin voucher wagon wall wallet watch water wheel window winter wire zebra"
).split()
ADJECTIVES = (
    "amber ancient big black blue bold brave bright brown busy calm cheap clean clever cold cool "
    "crisp dark deep dry early empty fair fast fine fresh full gentle gold good grand gray green "
    "happy heavy honest huge kind large late lazy light little long loud lucky modern narrow neat "
    "new nice noisy old open orange pale plain pink polite proud pure purple quick quiet rare red "
    "rich rough round safe sharp shiny short shy silent silver simple slow small smart smooth soft "
    "solid strong sunny sweet tall tame thick thin tidy tiny warm weak wet white wide wild wise yellow young"
).split()
VERBS = (
    "add apply archive assign book build calculate cancel change check clean close collect compute "
    "convert copy count create delete describe detect draw edit enable estimate evaluate export "
    "fetch fill find fix format generate get grade import inspect label launch list load lock look_up "
    "make mark measure merge move notify open order parse pause pay pick plot predict print process "
    "publish query rank read refresh register remove rename render repeat replace report request "
    "reserve reset resize resolve restart restore rotate run save scan schedule score search select "
    "send set share show simulate solve sort split start stop store submit summarize sync tag test "
    "track transfer transform translate trigger tune update upload validate verify visit watch wrap write"
).split()
COLORS = "red blue green yellow black white orange purple pink brown gray teal violet gold".split()
ANIMALS = (
    "cat dog fox owl bear wolf horse rabbit mouse tiger eagle whale crow deer duck frog goat "
    "hedgehog lizard monkey otter parrot penguin seal sheep snail spider swan turtle zebra"
).split()
FOODS = (
    "bread rice soup pasta salad cheese apple pear plum cherry mango lemon carrot potato tomato "
    "onion pepper bean egg fish noodle pancake waffle honey cake cookie tea coffee juice milk"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
LANGUAGES = "English German French Spanish Italian Polish Turkish Hindi Arabic Dutch Greek Swedish Korean Japanese".split()  # fmt: skip
_CONSONANTS = (
    "b c d f g h j k l m n p q r s t v w x z br ch cl dr fl gr kr pl pr sh sl st th tr".split()
)
_VOWELS = "a e i o u a e i o u ai ea ie oa ou y".split()
_ENDS = " n r s t l m x nd rt ck ng sh ll ss".split(" ")


def pseudo_word(rng: random.Random, low: int = 1, high: int = 3) -> str:
    """A pronounceable word that is in no list."""
    parts = [rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(low, high))]
    return "".join(parts) + rng.choice(_ENDS)


_ROOTS = (
    "act age air arm art bake band bank bar base bath beam bear bell bend bind blend block blow boil bond boot born "
    "bow brew broad buy call camp care cast catch chain charge chart chase chip clear climb clip close coat cook copy "
    "core cost count court cover crack craft cross cut dance dare dash deal deck dig dim dive draft drag draw drift "
    "drill drive drop dust earn edge end enrol face fade fail fair fall fan feed feel fetch fight fill firm fit flash "
    "flat float flow fold foot form free front fuel gain gap gate gear give glow goal grade grain grand grant graph "
    "grip ground group grow guard guess guide hand hang hard heal hear heat hold hook host hunt ice join joint judge "
    "jump keep kick land lane lead lean learn leave lift line link live load loan log long loop mail main make mark "
    "mass match mate meet melt mend mix model mood mount move nail need nest net noise norm order pace pack pair part "
    "pass patch path pay peak pick pin pitch place plan plant play plug point port post pour press prime print probe "
    "pull pump push quest race rack rail raise range rank rate reach rent rest ride ring rise risk roll room root rope "
    "round rule rush safe sample scale scan scope seal search seat sell send sense serve set shape share sharp shift "
    "shine shop short show sign sing sink site size skill skip slice slide slot smart snap soft solid sort sound space "
    "spare speak speed spell spend spin split spot spread stack staff stage stand state stay steel steer step stick "
    "stock stop stretch strike strip study style surf swap sweep swim swing switch tail talk tap task taste teach team "
    "tell term test text thank think throw tie tile time tone touch tour trace track trade train trap treat trend trick "
    "trip trust try tube turn twist type unit use view voice vote wage wait wake walk warm wash waste watch wave wear "
    "weld win wind wing wipe work wrap write yield zone zoom"
).split()
_PREFIXES = (
    "re un de over under out sub inter pre up down mis fore co auto bio geo micro multi".split()
)
_SUFFIXES = (
    "er ing ed s ment ness ful less able ion al ly ure age ist ity ive ous ship ward let".split()
)


def rare_word(rng: random.Random) -> str:
    """A word out of a root and what English puts before and after it."""
    text = rng.choice(_ROOTS)
    if rng.random() < 0.2:
        text = rng.choice(_PREFIXES) + text
    return text + rng.choice(_SUFFIXES) if rng.random() < 0.45 else text


def letters(rng: random.Random, low: int, high: int) -> str:
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(low, high)))


def word(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.36:
        return rng.choice(NOUNS)
    if roll < 0.5:
        return rng.choice(ADJECTIVES)
    if roll < 0.72:
        return rare_word(rng)
    return pseudo_word(rng) if roll < 0.94 else letters(rng, 2, 7)


def words(rng: random.Random, low: int = 2, high: int = 4) -> str:
    return " ".join(word(rng) for _ in range(rng.randint(low, high)))


def title(rng: random.Random) -> str:
    text = words(rng, 1, 4)
    return text.title() if rng.random() < 0.6 else text


_SCRIPTS = (
    ((0x4E00, 0x9FA5), 5), ((0x3041, 0x3093), 2), ((0x30A1, 0x30F3), 2), ((0xAC00, 0xD7A3), 2),
    ((0x0430, 0x044F), 1), ((0x03B1, 0x03C9), 1), ((0x05D0, 0x05EA), 1), ((0x0627, 0x064A), 1),
    ((0x00E0, 0x00FF), 1), ((0x0905, 0x0939), 1), ((0x1F300, 0x1F5FF), 1),
)  # fmt: skip
_COMMON_HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本去把性好应开它合还因由其些然前外天政四日那社义事平形相全表间样与关各重新线内数正心反你明看原又么利比或但质气第向道命此变条只没结解问意建月公无系军很情者最立代想已通并提直题党程展五果料象员革位入常文总次品式活设及管特件长求老头基资边流路级少图山统接知较将组见计别她手角期根论运农指几九区强放决西被干做必战先回则任取据处队南给色光门即保治北造百规热领七海口东导器压志世金增争济阶油思术极交受联什认六共权收证改清己美再采转更单风切打白教速花带安场身车例真务具万每目至达走积示议声报斗完类八离华名确才科张信马节话米整空元况今集温传土许步群广石记需段研界拉林律叫且究观越织装影算低持音众书布复容儿须际商非验连断深难近矿千周委素技备半办青省列习响约支般史感劳便团往酸历市克何除消构府称太准精值号率族维划选标写存候毛亲快效斯院查江型眼王按格养易置派层片始却专状育厂京识适属圆包火住调满县局照参红细引听该铁价严"


def foreign(rng: random.Random) -> str:
    """One to eight characters of one non-Latin script, sometimes with a Latin word or a space."""
    if rng.random() < 0.4:
        text = "".join(rng.choice(_COMMON_HAN) for _ in range(rng.randint(1, 8)))
    else:
        ranges, weights = zip(*_SCRIPTS, strict=True)
        low, high = rng.choices(ranges, weights)[0]
        size = rng.randint(1, 2) if low > 0xFFFF else rng.randint(1, 8)
        text = "".join(chr(rng.randint(low, high)) for _ in range(size))
        if rng.random() < 0.3:
            kana = "".join(chr(rng.randint(0x3041, 0x3093)) for _ in range(rng.randint(1, 4)))
            text += kana if low > 0x3000 else ""
    return text + " " + word(rng) if rng.random() < 0.12 else text


def person(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.15:
        return foreign(rng)
    first = rng.choice(FIRST) if roll < 0.7 else pseudo_word(rng).capitalize()
    if rng.random() < 0.5:
        return first
    return f"{first} {rng.choice(LAST) if roll < 0.6 else pseudo_word(rng).capitalize()}"


def place(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.1:
        return foreign(rng)
    name = rng.choice(CITIES) if roll < 0.6 else pseudo_word(rng, 2, 3).capitalize()
    if rng.random() < 0.15:
        name = rng.choice(("San", "Port", "Lake", "New", "Saint", "North", "Fort")) + " " + name
    if rng.random() < 0.25:
        name += ", " + (rng.choice(STATES) if rng.random() < 0.7 else pseudo_word(rng).capitalize())
    return name


def company(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return foreign(rng)
    ending = rng.choice(("", " Inc", " Ltd", " GmbH", " Group", " Labs", " & Sons", " Co.", " AG"))
    return pseudo_word(rng, 1, 3).capitalize() + ending


def integer(rng: random.Random) -> int:
    high = rng.choice((9, 9, 20, 50, 99, 100, 999, 9999, 999_999))
    value = rng.randint(0, high)
    return -value if rng.random() < 0.08 else value


def decimal(rng: random.Random) -> float:
    value = round(rng.uniform(0, rng.choice((1, 10, 100, 5000))), rng.choice((1, 2, 3)))
    return -value if rng.random() < 0.1 else value


def code(rng: random.Random) -> str:
    """An identifier such as order numbers and keys."""
    kind = rng.randrange(6)
    if kind == 0:
        return f"{letters(rng, 1, 4).upper()}-{rng.randint(1, 99999)}"
    if kind == 1:
        return f"{letters(rng, 2, 5)}_{rng.randint(0, 9999)}"
    if kind == 2:
        return "".join(rng.choice("0123456789abcdef") for _ in range(rng.randint(4, 12)))
    if kind == 3:
        return str(rng.randint(100, 10**8))
    if kind == 4:
        alphabet = string.ascii_letters + string.digits
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(4, 10)))
    return f"{word(rng)}-{rng.randint(1, 99)}"


def email(rng: random.Random) -> str:
    host = rng.choice(("example.com", "example.org", "mail.test", pseudo_word(rng) + ".net"))
    return f"{rng.choice((word(rng), rng.choice(FIRST).lower()))}@{host}"


def url(rng: random.Random) -> str:
    tail = "/".join(word(rng) for _ in range(rng.randint(0, 2)))
    return f"https://{pseudo_word(rng)}.{rng.choice(('com', 'org', 'dev', 'test'))}/{tail}"


def path(rng: random.Random) -> str:
    folder = rng.choice(("", "", "src/", "data/", "docs/", "/tmp/", f"{word(rng)}/"))
    return f"{folder}{word(rng)}.{rng.choice(('txt', 'csv', 'md', 'py', 'json', 'log', 'yaml'))}"


def date(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return rng.choice((
        f"{rng.choice(MONTHS)} {rng.randint(1, 28)}", rng.choice(DAYS), "tomorrow", "today",
        f"{rng.randint(1, 28)} {rng.choice(MONTHS)} 20{rng.randint(10, 39)}",
    ))  # fmt: skip


def clock(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02}"


def phrase(rng: random.Random) -> str:
    """Short free text: subjects, messages, queries."""
    roll = rng.random()
    if roll < 0.12:
        return foreign(rng)
    if roll < 0.3:
        return f"{rng.choice(VERBS).replace('_', ' ')} the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    if roll < 0.4:
        return f"{rng.choice(NOUNS)} for {person(rng)}"
    if roll < 0.5:
        return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} in {place(rng)}"
    return words(rng, 1, 6)


_REMARK_VERBS = "starts leaves opens stops moves waits stands goes works runs arrives comes turns stays lies ends".split()  # fmt: skip


def remark(rng: random.Random) -> str:
    """A sentence about something, whose point comes last: it must not be cut."""
    about = rng.choice((word(rng), code(rng), f"the {rng.choice(NOUNS)}", person(rng)))
    how = rng.choice(("at", "in", "on", "from", "for", "by", "with", "near"))
    point = rng.choice((clock, place, code, word, person, integer, date))(rng)
    return f"{about} {rng.choice(_REMARK_VERBS)} {'at' if ':' in str(point) else how} {point}"


def command(rng: random.Random) -> str:
    """One line for a shell."""
    return rng.choice((
        f"ls {path(rng)}", f"cat {path(rng)}", f"git {rng.choice(('status', 'log', 'diff', 'pull', 'add .'))}", f"make {word(rng)}",
        f"python {path(rng)}", f"mkdir {word(rng)}", f"rm {path(rng)}", f"cp {path(rng)} {path(rng)}", f"mv {path(rng)} {word(rng)}/",
        f"grep {word(rng)} {path(rng)}", f"wc -l {path(rng)}", f"echo {words(rng, 1, 3)} > {path(rng)}", f"echo '{words(rng, 1, 3)}' >> {path(rng)}",
        f"cat {path(rng)} | {rng.choice(('sort', 'wc -l', 'head', 'uniq'))}", f"pip install {word(rng)}", f"npm run {word(rng)}", f"cd {word(rng)} && ls",
        f"touch {path(rng)}", f"chmod +x {path(rng)}", f"pytest {path(rng)}", f"{word(rng)} --{word(rng)} {integer(rng)}", "pwd", "ls -la", "date",
    ))  # fmt: skip


def identifier(rng: random.Random) -> str:
    """A Python name in snake case."""
    parts = [rng.choice((rng.choice(NOUNS), rng.choice(ADJECTIVES), pseudo_word(rng, 1, 2)))]
    if rng.random() < 0.7:
        parts.insert(0, rng.choice((rng.choice(VERBS), rng.choice(ADJECTIVES))))
    return "_".join(parts)
