"""Small Python programs: what they do in words, and the code."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import values as v
from .text import expand


@dataclass
class Program:
    """A program to be written. `says` starts with a verb in the third person ("returns ...")."""

    key: str  # what the split holds out together with the function's name
    says: str
    names: str  # alternatives for the function's name
    params: list[str]
    body: list[str]  # lines, with the parameters as {0}, {1}
    sample: Callable[[random.Random], tuple[Any, ...]]

    def code(self, name: str, params: list[str]) -> str:
        lines = [f"def {name}({', '.join(params)}):"]
        lines += ["    " + _put(line, params) for line in self.body]
        return "\n".join(lines)


def _put(line: str, params: list[str]) -> str:
    for i, name in enumerate(params):
        line = line.replace(f"{{{i}}}", name)
    return line


# ---- programs put together from a filter, a step and a collecting part -------------------------

_NUMBER_FILTERS = {
    "even": ("even (numbers|values|entries|integers)", "x % 2 == 0"),
    "odd": ("odd (numbers|values|entries|integers)", "x % 2 == 1"),
    "positive": ("positive (numbers|values|entries)", "x > 0"),
    "negative": ("negative (numbers|values|entries)", "x < 0"),
    "above": ("(numbers|values|entries|elements) (greater than|larger than|above|bigger than|over) {k}", "x > {k}"),
    "below": ("(numbers|values|entries|elements) (less than|smaller than|below|under) {k}", "x < {k}"),
    "multiple": ("(numbers|values) (divisible by|that are multiples of|that are divisible by) {k}", "x % {k} == 0"),
    "nonzero": ("(non-zero numbers|numbers that are not zero|values other than zero)", "x != 0"),
    "all": ("(numbers|values|elements|items)", ""),
}  # fmt: skip
_NUMBER_STEPS = {
    "": ("", "x"),
    "square": ("(squares|squared values) of", "x * x"),
    "cube": ("cubes of", "x ** 3"),
    "double": ("(doubles of|doubled)", "x * 2"),
    "half": ("halves of", "x / 2"),
    "abs": ("absolute values of", "abs(x)"),
    "negated": ("(negatives of|negated)", "-x"),
}
_NUMBER_ENDS = {
    "list": ("returns (a list of|a list with|only|a new list with)", "[{e}]", "keep select filter only pick"),
    "sum": ("returns the (sum|total) of", "sum({e})", "sum total add_up sum_of"),
    "count": ("(counts|returns the number of|returns how many there are of)", "len([{e}])", "count number_of how_many count_of"),
    "max": ("returns the (largest|biggest|maximum|greatest) of", "max({e})", "max largest biggest top"),
    "min": ("returns the (smallest|minimum|least) of", "min({e})", "min smallest lowest least"),
    "sorted": ("returns (a sorted list of|in sorted order)", "sorted({e})", "sorted ordered sort"),
    "average": ("returns the (average|mean) of", "sum([{e}]) / len([{e}])", "average mean avg"),
}  # fmt: skip


def number_program(rng: random.Random) -> Program:
    which, (what, test) = rng.choice(list(_NUMBER_FILTERS.items()))
    step, (of_what, expr) = rng.choice(list(_NUMBER_STEPS.items()))
    end, (opening, shape, verbs) = rng.choice(list(_NUMBER_ENDS.items()))
    if end == "count" and step:
        step, (of_what, expr) = "", _NUMBER_STEPS[""]
    k = str(rng.randint(2, 9) if which == "multiple" else rng.randint(0, 50))
    items = f"{expr} for x in {{0}}" + (f" if {test}" if test else "")
    middle = (of_what + " the " if of_what else "the ") + what.replace("{k}", k)
    where = "(in|of|from) (a list|the list|a list of integers|a given list|a list of numbers)"
    says = f"{opening} {middle} {where}"
    adjective = f"{step}_{which}" if step else which
    names = "|".join(f"{verb}_{adjective}" for verb in verbs.split())
    low, high = (1, 60) if end in ("max", "min", "average") else (-20, 60)
    return Program(
        f"number-{which}-{step}-{end}", says, names, ["numbers"],
        [f"return {shape.replace('{e}', items)}".replace("{k}", k)],
        lambda r: ([r.randint(low, high) for _ in range(r.randint(4, 9))],),
    )  # fmt: skip


_CHAR_FILTERS = {
    "vowels": ("vowels", "c in 'aeiouAEIOU'"),
    "consonants": ("consonants", "c.isalpha() and c not in 'aeiouAEIOU'"),
    "digits": ("digits", "c.isdigit()"),
    "letters": ("letters", "c.isalpha()"),
    "uppercase": ("(uppercase|upper case|capital) letters", "c.isupper()"),
    "lowercase": ("(lowercase|lower case|small) letters", "c.islower()"),
    "spaces": ("(spaces|whitespace characters|blanks)", "c.isspace()"),
    "alphanumeric": ("(alphanumeric characters|letters and digits)", "c.isalnum()"),
}
_CHAR_ENDS = {
    "count": ("(counts the {w}|returns the number of {w}|returns how many {w} there are)", "sum(1 for c in {0} if {t})", "count number_of how_many num"),
    "remove": ("(removes|strips|deletes|drops) (all |all the |the |){w}", "''.join(c for c in {0} if not ({t}))", "remove strip erase without delete"),
    "keep": ("(keeps only the {w}|returns only the {w}|extracts the {w})", "''.join(c for c in {0} if {t})", "keep only extract get"),
    "list": ("returns a list of the {w}", "[c for c in {0} if {t}]", "list all find collect"),
}  # fmt: skip


def char_program(rng: random.Random) -> Program:
    which, (what, test) = rng.choice(list(_CHAR_FILTERS.items()))
    end, (opening, shape, verbs) = rng.choice(list(_CHAR_ENDS.items()))
    where = "(in|of|from) (a string|a text|the text|the string|a word|a given string)"
    return Program(
        f"char-{which}-{end}", f"{opening.replace('{w}', what)} {where}",
        "|".join(f"{verb}_{which}" for verb in verbs.split()), ["text"],
        ["return " + shape.replace("{t}", test)],
        lambda r: (expand_sample(r),),
    )  # fmt: skip


_WORD_FILTERS = {
    "longer": ("words (longer than|with more than) {k} (characters|letters)", "len(w) > {k}"),
    "shorter": ("words (shorter than|with fewer than|with less than) {k} (characters|letters)", "len(w) < {k}"),
    "starting": ("words (starting with|that start with|that begin with) (the letter |){q}", "w.startswith({q})"),
    "ending": ("words (ending with|that end with|ending in) (the letter |){q}", "w.endswith({q})"),
    "containing": ("words (containing|that contain|with) (the letter |){q}", "{q} in w"),
    "capitalised": ("(capitalised|capitalized) words", "w[0].isupper()"),
    "all": ("words", ""),
}  # fmt: skip
_WORD_ENDS = {
    "list": ("returns (a list of|the list of) the {w}", "[w for w in {0}.split(){t}]", "find list get words"),
    "count": ("(counts the {w}|returns the number of {w}|returns how many {w} there are)", "len([w for w in {0}.split(){t}])", "count number_of count_words how_many"),
    "upper": ("returns a list of the {w} in (upper case|uppercase|capital letters)", "[w.upper() for w in {0}.split(){t}]", "upper shout loud"),
    "lengths": ("returns a list of the lengths of the {w}", "[len(w) for w in {0}.split(){t}]", "lengths sizes lengths_of"),
    "joined": ("returns the {w} joined (by|with|by single) (commas|a comma)", "','.join(w for w in {0}.split(){t})", "join comma joined"),
    "longest": ("returns the longest of the {w}", "max([w for w in {0}.split(){t}], key=len)", "longest longest_of biggest"),
}  # fmt: skip


def word_program(rng: random.Random) -> Program:
    which, (what, test) = rng.choice(list(_WORD_FILTERS.items()))
    end, (opening, shape, verbs) = rng.choice(list(_WORD_ENDS.items()))
    k, letter = str(rng.randint(2, 8)), "'" + rng.choice("abcdefghiklmnoprstuw") + "'"
    condition = f" if {test}" if test else ""

    def put(text: str) -> str:
        return text.replace("{k}", k).replace("{q}", letter)

    where = "(in|of|from) (a string|a text|the text|the sentence|a sentence|a given text)"
    return Program(
        f"word-{which}-{end}", put(opening.replace("{w}", what)) + " " + where,
        "|".join(f"{verb}_{which}" for verb in verbs.split()), ["text"],
        ["return " + put(shape.replace("{t}", condition))],
        lambda r: (" ".join([letter[1] + "ro" + letter[1] if which != "longer" else "w" * 9,
                             letter[1].upper() + "to", letter[1], *v.words(r, 4, 7).split()]),),
    )  # fmt: skip


_FORMULAS = {
    "add": ("(returns {0} plus {k}|adds {k} to a number|increases a number by {k})", "{0} + {k}"),
    "subtract": ("(returns {0} minus {k}|subtracts {k} from a number|decreases a number by {k})", "{0} - {k}"),
    "times": ("(multiplies a number by {k}|returns a number times {k}|returns {k} times {0})", "{0} * {k}"),
    "power": ("raises a number to the power (of |){k}", "{0} ** {k}"),
    "modulo": ("returns the remainder (of a number divided by|after dividing a number by|of a number modulo) {k}", "{0} % {k}"),
    "divisible": ("(checks|tells|returns) (whether|if) a number is (divisible by|a multiple of) {k}", "{0} % {k} == 0"),
    "above": ("(checks|tells|returns) (whether|if) a number is (greater than|larger than|above) {k}", "{0} > {k}"),
    "below": ("(checks|tells|returns) (whether|if) a number is (less than|smaller than|below) {k}", "{0} < {k}"),
    "quotient": ("returns (the whole part of|the integer part of) a number divided by {k}", "{0} // {k}"),
    "cap": ("(limits a number to at most {k}|returns a number, but at most {k}|caps a number at {k})", "min({0}, {k})"),
    "floor": ("(returns a number, but at least {k}|raises a number to at least {k}|makes sure a number is at least {k})", "max({0}, {k})"),
    "distance": ("returns the (distance|absolute difference) (of a number from|between a number and) {k}", "abs({0} - {k})"),
}  # fmt: skip


def formula_program(rng: random.Random) -> Program:
    which, (says, expr) = rng.choice(list(_FORMULAS.items()))
    k = str(rng.randint(2, 5) if which == "power" else rng.randint(2, 40))
    names = f"{which}_{k}|{which}|by_{k}|{which}_number|apply_{which}"
    return Program(
        f"formula-{which}-{k}", says.replace("{k}", k), names, ["n"], [f"return {expr.replace('{k}', k)}"],
        lambda r: (r.randint(-10, 90),),
    )  # fmt: skip


_TWO_NUMBERS = {
    "sum": ("(returns the sum of|adds) two numbers", "{0} + {1}", "add|plus|sum_two|add_numbers"),
    "difference": ("(returns the difference of|subtracts) two numbers", "{0} - {1}", "subtract|minus|difference"),
    "product": ("(returns the product of|multiplies) two numbers", "{0} * {1}", "multiply|times|product"),
    "larger": ("returns the (larger|bigger|maximum) of two numbers", "max({0}, {1})", "larger|bigger|max_of_two|maximum"),
    "smaller": ("returns the (smaller|minimum) of two numbers", "min({0}, {1})", "smaller|min_of_two|minimum"),
    "mean": ("returns the (average|mean) of two numbers", "({0} + {1}) / 2", "average|mean|midpoint|average_two"),
    "gap": ("returns the absolute difference (of|between) two numbers", "abs({0} - {1})", "gap|distance|abs_diff"),
    "power": ("raises one number to the power of (another|the other)", "{0} ** {1}", "power|raise_to|exponent"),
    "area": ("returns the area of a rectangle (given|from) (its |)width and height", "{0} * {1}", "area|rectangle_area|surface"),
    "perimeter": ("returns the perimeter of a rectangle (given|from) (its |)width and height", "2 * ({0} + {1})", "perimeter|rectangle_perimeter|outline"),
    "same_sign": ("(checks|tells|returns) whether two numbers are equal", "{0} == {1}", "equal|same|is_equal"),
    "sumsq": ("returns the sum of the squares of two numbers", "{0} * {0} + {1} * {1}", "sum_of_squares|squares_sum"),
}  # fmt: skip


def two_number_program(rng: random.Random) -> Program:
    which, (says, expr, names) = rng.choice(list(_TWO_NUMBERS.items()))
    params = ["width", "height"] if which in ("area", "perimeter") else ["a", "b"]
    return Program(
        f"two-{which}", says, names, params, [f"return {expr}"], lambda r: (r.randint(1, 30), r.randint(1, 5))
    )  # fmt: skip


def expand_sample(rng: random.Random) -> str:
    """Text with letters of both cases, digits and spaces."""
    parts = [v.word(rng).capitalize(), str(rng.randint(0, 99)), v.word(rng), v.word(rng).upper()]
    rng.shuffle(parts)
    return " ".join(parts)


def describe(rng: random.Random, program: Program, params: list[str]) -> str:
    """The program in words, with its parameters put in."""
    return _put(expand(rng, program.says), params)
