"""Well-known small programs, with many ways to ask for each."""

from __future__ import annotations

import random
from typing import Any

from . import values as v
from .coding_tasks import Program


def _numbers(rng: random.Random) -> list[int]:
    return [rng.randint(0, 20) for _ in range(rng.randint(3, 8))]


def _text(rng: random.Random) -> tuple[Any, ...]:
    return (v.words(rng, 2, 6),)


def _word(rng: random.Random) -> tuple[Any, ...]:
    return (rng.choice(("level", "noon", "abba", v.word(rng), v.word(rng))),)


def _list(rng: random.Random) -> tuple[Any, ...]:
    return (_numbers(rng),)


def _small(rng: random.Random) -> tuple[Any, ...]:
    return (rng.randint(1, 12),)


def _list_and_k(rng: random.Random) -> tuple[Any, ...]:
    return _numbers(rng), rng.randint(1, 3)


def _mapping(rng: random.Random) -> tuple[Any, ...]:
    return ({w: rng.randint(1, 50) for w in sorted({v.word(rng) for _ in range(4)})},)


def _two_lists(rng: random.Random) -> tuple[Any, ...]:
    return _numbers(rng), _numbers(rng)


# names | parameters | description | body | sample
_ROWS: tuple[tuple[str, str, str, str, Any], ...] = (
    ("reverse_string|reverse_text|flip|backwards|reversed_text|reverse|mirror", "text", "(reverses a (string|text|word)|returns (the|a) (string|text|word) (reversed|backwards|in reverse order))", "return {0}[::-1]", _text),
    ("is_palindrome|palindrome|same_backwards|check_palindrome|reads_same", "text", "(checks|tells|returns|decides) (whether|if) a (string|word|text) (is a palindrome|reads the same backwards|is the same forwards and backwards)", "return {0} == {0}[::-1]", _word),
    ("count_words|word_count|number_of_words|words_in|how_many_words", "text", "(counts the words in|returns the number of words (in|of)) a (string|text|sentence)", "return len({0}.split())", _text),
    ("capitalize_words|title_case|to_title|capitalise_all|cap_words", "text", "(capitalizes|capitalises) (each|every) word (in|of) a (string|text|sentence)", "return ' '.join(w.capitalize() for w in {0}.split())", _text),
    ("acronym|initials|make_acronym|first_letters", "text", "(returns the acronym of a (phrase|text|string)|builds an acronym from a (phrase|text|string)|returns the first letters of (the words|all words) (in|of) a (phrase|text) in (upper case|uppercase))", "return ''.join(w[0].upper() for w in {0}.split())", _text),
    ("longest_word|find_longest|longest|biggest_word", "text", "(returns|finds) the longest word (in|of) a (string|text|sentence)", "return max({0}.split(), key=len)", _text),
    ("shortest_word|find_shortest|shortest", "text", "(returns|finds) the shortest word (in|of) a (string|text|sentence)", "return min({0}.split(), key=len)", _text),
    ("swap_case|switch_case|invert_case|flip_case", "text", "(swaps|inverts|flips) the case of (all|every|each) (letters|letter|characters) (in|of) a (string|text)", "return {0}.swapcase()", _text),
    ("shout|to_upper|upper|uppercase|make_upper", "text", "(returns|converts) a (string|text) (in|to) (upper case|uppercase|capital letters)", "return {0}.upper()", _text),
    ("whisper|to_lower|lower|lowercase|make_lower", "text", "(returns|converts) a (string|text) (in|to) (lower case|lowercase|small letters)", "return {0}.lower()", _text),
    ("remove_spaces|strip_spaces|no_spaces|squash|without_blanks", "text", "(removes|deletes) (all |the |)(spaces|blanks) (from|in) a (string|text)", "return {0}.replace(' ', '')", _text),
    ("slugify|slug|make_slug|dashes", "text", "(returns a slug of a text|makes a slug|turns a (text|title) into a slug): (lower case|lowercase|in lower case), (spaces replaced by|with|words joined by) (dashes|hyphens)", "return {0}.lower().replace(' ', '-')", _text),
    ("reverse_words|flip_words|words_backwards|reverse_order", "text", "(reverses|returns) the (order of the |)words (of|in) a (string|text|sentence)( in reverse order|)", "return ' '.join({0}.split()[::-1])", _text),
    ("char_count|count_char|count_letter|occurrences|letter_count", "text,char", "(counts how often a (character|letter) (occurs|appears) in a (string|text)|returns the number of times a (character|letter) (occurs|appears) in a (string|text))", "return {0}.count({1})", lambda r: (v.words(r, 2, 4), r.choice("aeinrst"))),
    ("repeat|repeat_string|repeat_text|times|echo", "text,n", "(repeats a (string|text) (a given number of|n|{1}) times|returns a (string|text) repeated (n|{1}) times)", "return {0} * {1}", lambda r: (v.word(r), r.randint(0, 4))),
    ("first_chars|take|prefix|start_of|first_n", "text,n", "returns the first (n|{1}) (characters|letters) of a (string|text)", "return {0}[:{1}]", lambda r: (v.words(r, 2, 3), r.randint(1, 5))),
    ("last_chars|suffix|tail|end_of|last_n", "text,n", "returns the last (n|{1}) (characters|letters) of a (string|text)", "return {0}[-{1}:]", lambda r: (v.words(r, 2, 3), r.randint(1, 5))),
    ("is_anagram|anagram|are_anagrams|same_letters", "a,b", "(checks|tells|returns) (whether|if) two (strings|words) are anagrams( of each other|)", "return sorted({0}) == sorted({1})", lambda r: r.choice((("listen", "silent"), ("stone", "notes"), (v.word(r), v.word(r))))),
    ("join_with|join_words|glue|connect", "words,sep", "joins a list of (words|strings) with a separator", "return {1}.join({0})", lambda r: ([v.word(r) for _ in range(3)], r.choice(("-", ", ", "/")))),
    ("unique_chars|distinct_letters|count_unique|different_chars", "text", "(counts|returns the number of) (different|distinct|unique) characters in a (string|text)", "return len(set({0}))", _text),
    ("letter_counts|char_frequency|frequencies|count_chars|histogram", "text", "(counts|returns) how often each character (occurs|appears) in a (string|text), as a (dict|dictionary)", "counts = {}\nfor c in {0}:\n    counts[c] = counts.get(c, 0) + 1\nreturn counts", _text),
    ("word_counts|word_frequency|count_each_word|word_histogram", "text", "(counts|returns) how often each word (occurs|appears) in a (string|text), as a (dict|dictionary)", "counts = {}\nfor w in {0}.split():\n    counts[w] = counts.get(w, 0) + 1\nreturn counts", lambda r: (" ".join(r.choice(("red", "blue", "tea")) for _ in range(6)),)),
    ("caesar|shift_letters|caesar_shift|encrypt|rotate_letters", "text,n", "(shifts|moves) (each|every|all) (lowercase |small |)(letter|letters) of a (string|text) by (n|{1}) (places|positions) in the alphabet", "return ''.join(chr((ord(c) - 97 + {1}) % 26 + 97) if c.islower() else c for c in {0})", lambda r: (v.words(r, 1, 2), r.randint(1, 10))),
    ("factorial|fact|compute_factorial|n_factorial", "n", "(returns|computes|calculates) the factorial of (a number|n|a non-negative integer|{0})", "result = 1\nfor i in range(2, {0} + 1):\n    result = result * i\nreturn result", _small),
    ("fibonacci|fib|nth_fibonacci|fib_number", "n", "(returns|computes|calculates) the ((n|{0})(-th|th)|nth) (Fibonacci|fibonacci) number( (starting with|where) 0 and 1|, counting from 0|)", "a, b = 0, 1\nfor _ in range({0}):\n    a, b = b, a + b\nreturn a", _small),
    ("fibonacci_list|fib_list|first_fibonacci|fib_sequence", "n", "returns (a list of|the list of|) the first (n|{0}) (Fibonacci|fibonacci) numbers", "result = []\na, b = 0, 1\nfor _ in range({0}):\n    result.append(a)\n    a, b = b, a + b\nreturn result", _small),
    ("gcd|greatest_common_divisor|common_divisor|compute_gcd", "a,b", "(returns|computes|calculates) the (greatest common divisor|gcd|largest common divisor) of two (numbers|integers)", "while {1}:\n    {0}, {1} = {1}, {0} % {1}\nreturn {0}", lambda r: (r.randint(2, 60), r.randint(2, 60))),
    ("lcm|least_common_multiple|common_multiple", "a,b", "(returns|computes|calculates) the (least common multiple|lcm|smallest common multiple) of two (numbers|integers)", "x, y = {0}, {1}\nwhile y:\n    x, y = y, x % y\nreturn {0} * {1} // x", lambda r: (r.randint(2, 30), r.randint(2, 30))),
    ("is_prime|prime|check_prime|prime_number", "n", "(checks|tells|returns|decides) (whether|if) a number is (a prime|prime|a prime number)", "if {0} < 2:\n    return False\nfor i in range(2, int({0} ** 0.5) + 1):\n    if {0} % i == 0:\n        return False\nreturn True", lambda r: (r.randint(0, 60),)),
    ("primes_up_to|list_primes|primes|primes_below", "n", "returns (a list of|the list of|) all (prime numbers|primes) up to (n|{0}|a number|a limit)", "return [x for x in range(2, {0} + 1) if all(x % i for i in range(2, x))]", lambda r: (r.randint(2, 40),)),
    ("is_even|even|check_even|even_number", "n", "(checks|tells|returns) (whether|if) a number is even", "return {0} % 2 == 0", _small),
    ("is_odd|odd|check_odd|odd_number", "n", "(checks|tells|returns) (whether|if) a number is odd", "return {0} % 2 == 1", _small),
    ("digit_sum|sum_digits|sum_of_digits|cross_sum", "n", "(returns|computes|calculates) the sum of the digits of (a number|an integer)", "return sum(int(d) for d in str({0}))", lambda r: (r.randint(0, 99999),)),
    ("count_digits|number_of_digits|digits|digit_count", "n", "(returns the number of|counts the) digits of (a number|an integer)", "return len(str({0}))", lambda r: (r.randint(0, 99999),)),
    ("reverse_number|flip_number|reversed_int|backwards_number", "n", "(reverses|returns) the digits of (a number|an integer)( in reverse order|)", "return int(str({0})[::-1])", lambda r: (r.randint(1, 9999),)),
    ("clamp|limit|bound|restrict|clip", "value,low,high", "(clamps|limits|restricts) a (value|number) (to the range|between|to) (low and high|{1} and {2}|a minimum and a maximum|a lower and an upper bound)", "return max({1}, min({0}, {2}))", lambda r: (r.randint(0, 30), 5, 20)),
    ("celsius_to_fahrenheit|to_fahrenheit|c_to_f|fahrenheit", "c", "converts (a temperature|degrees|) (from |)(Celsius|celsius) to (Fahrenheit|fahrenheit)", "return {0} * 9 / 5 + 32", lambda r: (r.randint(-20, 45),)),
    ("fahrenheit_to_celsius|to_celsius|f_to_c|celsius", "f", "converts (a temperature|degrees|) (from |)(Fahrenheit|fahrenheit) to (Celsius|celsius)", "return ({0} - 32) * 5 / 9", lambda r: (r.choice((32, 50, 68, 212)),)),
    ("sum_to|sum_up_to|triangle|total_up_to|sum_range", "n", "returns the sum of (all |the |)(numbers|integers) from 1 to (n|{0}|a number)", "return sum(range(1, {0} + 1))", _small),
    ("countdown|count_down|descending|down_from", "n", "returns a list (that counts|counting) down from (n|{0}|a number) to 1", "return list(range({0}, 0, -1))", _small),
    ("is_leap|leap_year|is_leap_year|check_leap", "year", "(checks|tells|returns) (whether|if) a year is a leap year", "return {0} % 4 == 0 and ({0} % 100 != 0 or {0} % 400 == 0)", lambda r: (r.choice((1900, 2000, 2023, 2024, r.randint(1900, 2100))),)),
    ("divisors|find_divisors|all_divisors|factors", "n", "returns (a list of|the list of|) all (divisors|factors) of a number", "return [i for i in range(1, {0} + 1) if {0} % i == 0]", lambda r: (r.randint(1, 48),)),
    ("fizzbuzz|fizz_buzz|fizz|play_fizzbuzz", "n", "returns (Fizz|'Fizz') (for|if a number is divisible by|for multiples of) 3, (Buzz|'Buzz') for 5, (FizzBuzz|'FizzBuzz') for both(,| and) (else|otherwise) the number as a string", "if {0} % 15 == 0:\n    return 'FizzBuzz'\nif {0} % 3 == 0:\n    return 'Fizz'\nif {0} % 5 == 0:\n    return 'Buzz'\nreturn str({0})", lambda r: (r.randint(1, 45),)),
    ("to_binary|binary|as_binary|binary_string", "n", "(converts|turns) (a number|an integer) (to|into) a binary string", "return bin({0})[2:]", _small),
    ("sign|sign_of|signum|get_sign", "n", "returns the sign of a number(: | as |, |, that is )1, 0 or -1", "if {0} > 0:\n    return 1\nif {0} < 0:\n    return -1\nreturn 0", lambda r: (r.randint(-5, 5),)),
    ("collatz_steps|collatz|steps_to_one|collatz_length", "n", "(counts|returns the number of) (Collatz|collatz) steps (until|to) (a number|n|{0}) (reaches 1|1|becomes 1)", "steps = 0\nwhile {0} != 1:\n    {0} = {0} // 2 if {0} % 2 == 0 else 3 * {0} + 1\n    steps += 1\nreturn steps", _small),
    ("sum_list|total|add_all|sum_values|list_sum", "numbers", "(returns the (sum|total) of|sums|adds up) (all numbers in|the numbers in|the values of|) a list( of numbers| of integers|)", "return sum({0})", _list),
    ("average|mean|avg|list_average|compute_mean", "numbers", "(returns|computes|calculates) the (average|mean|arithmetic mean) of (the numbers in |)a list( of numbers|)", "return sum({0}) / len({0})", _list),
    ("median|find_median|middle_number|compute_median", "numbers", "(returns|computes|finds|calculates) the median of (the numbers in |)a list( of numbers|)", "ordered = sorted({0})\nmiddle = len(ordered) // 2\nif len(ordered) % 2:\n    return ordered[middle]\nreturn (ordered[middle - 1] + ordered[middle]) / 2", _list),
    ("largest|maximum|find_max|biggest|max_value", "numbers", "(returns|finds) the (largest|biggest|maximum|greatest) (number|value|element) (in|of) a list", "return max({0})", _list),
    ("smallest|find_min|lowest|min_value", "numbers", "(returns|finds) the (smallest|minimum|lowest) (number|value|element) (in|of) a list", "return min({0})", _list),
    ("second_largest|runner_up|second_biggest|second_max", "numbers", "(returns|finds) the second (largest|biggest|highest) (distinct |different |)(number|value) (in|of) a list", "return sorted(set({0}))[-2]", lambda r: ([*_numbers(r), 21, 22],)),
    ("value_range|spread|range_of|max_minus_min", "numbers", "returns the difference between the (largest|maximum) and (the |)(smallest|minimum) (number|value) (in|of) a list", "return max({0}) - min({0})", _list),
    ("product|multiply_all|list_product|product_of", "numbers", "(returns the product of|multiplies) (all numbers in|the numbers in|all values of) a list", "result = 1\nfor x in {0}:\n    result = result * x\nreturn result", _list),
    ("unique|remove_duplicates|dedupe|distinct|no_repeats", "items", "(removes duplicates from a list|returns a list without duplicates|returns the unique (items|values|elements) of a list)(, keeping the order|, in their order| and keeps the order|)", "result = []\nfor x in {0}:\n    if x not in result:\n        result.append(x)\nreturn result", _list),
    ("flatten|flatten_list|merge_lists|flat", "lists", "flattens a (list of lists|nested list)", "return [x for inner in {0} for x in inner]", lambda r: ([_numbers(r), _numbers(r), [1]],)),
    ("chunk|chunks|split_list|in_groups|batches", "items,size", "(splits|cuts|divides) a list into (chunks|groups|parts|pieces) of (a given size|(n|{1}) (items|elements))", "return [{0}[i:i + {1}] for i in range(0, len({0}), {1})]", _list_and_k),
    ("rotate|rotate_list|shift_left|rotate_left", "items,k", "rotates a list (to the left|left) by (k|{1}) (positions|places|steps)", "return {0}[{1}:] + {0}[:{1}]", lambda r: (_numbers(r), r.randint(0, 3))),
    ("running_sum|cumulative_sum|prefix_sums|running_total", "numbers", "returns (a list of |)the (running|cumulative) (sums|totals|sum) of a list", "result = []\ntotal = 0\nfor x in {0}:\n    total = total + x\n    result.append(total)\nreturn result", _list),
    ("reverse_list|backwards_list|flip_list|reversed_items", "items", "(reverses a list|returns a list (reversed|in reverse order|backwards))", "return {0}[::-1]", _list),
    ("sort_descending|sort_desc|sort_down|largest_first", "numbers", "(sorts a list|returns a list sorted) (in descending order|from largest to smallest|descending)", "return sorted({0}, reverse=True)", _list),
    ("sort_ascending|sort_list|sort_up|smallest_first", "numbers", "(sorts a list|returns a list sorted) (in ascending order|from smallest to largest|ascending)", "return sorted({0})", _list),
    ("sort_by_length|by_length|order_by_length|length_sort", "words", "sorts a list of (words|strings) by (their length|length)", "return sorted({0}, key=len)", lambda r: ([v.word(r) for _ in range(4)],)),
    ("common|intersection|shared|in_both|common_items", "a,b", "returns (a list of |)the (items|elements|values) (that are in both|common to two|that two lists share|of both) (lists|of two lists|)", "return [x for x in {0} if x in {1}]", _two_lists),
    ("difference|only_first|not_in_second|list_difference", "a,b", "returns the (items|elements|values) of the first list that are not in the second( list|)", "return [x for x in {0} if x not in {1}]", _two_lists),
    ("interleave|zip_lists|pair_up|pairs|make_pairs", "a,b", "(pairs up the (items|elements) of two lists|returns a list of pairs (from|of) two lists)", "return list(zip({0}, {1}))", _two_lists),
    ("dot_product|dot|scalar_product|inner_product", "a,b", "(returns|computes|calculates) the (dot product|scalar product) of two (lists|vectors)", "return sum(x * y for x, y in zip({0}, {1}))", _two_lists),
    ("count_item|count_value|occurrences_in|how_often", "items,item", "(counts how often (an item|a value) (occurs|appears) in a list|returns the number of times (an item|a value) (occurs|appears) in a list)", "return {0}.count({1})", lambda r: (_numbers(r), r.randint(0, 20))),
    ("remove_item|without|remove_value|drop_value", "items,item", "(removes all occurrences of (an item|a value) from a list|returns a list without (a given value|a value|an item))", "return [x for x in {0} if x != {1}]", lambda r: ([1, 2, 1, 3], r.randint(1, 3))),
    ("first_last|ends|first_and_last|both_ends", "items", "returns the first and (the |)last (item|element) of a list( as a tuple|)", "return {0}[0], {0}[-1]", _list),
    ("every_other|every_second|alternate|skip_one", "items", "returns every (second|other) (item|element) of a list", "return {0}[::2]", _list),
    ("is_sorted|sorted_check|check_sorted|in_order", "numbers", "(checks|tells|returns) (whether|if) a list is sorted( in ascending order|)", "return {0} == sorted({0})", lambda r: (r.choice(([1, 2, 3], _numbers(r))),)),
    ("transpose|flip_matrix|swap_rows_columns|transposed", "matrix", "transposes a matrix( given as a list of lists| given as a list of rows|)", "return [list(row) for row in zip(*{0})]", lambda r: ([[1, 2, r.randint(0, 9)], [4, 5, 6]],)),
    ("invert_dict|swap_dict|invert|flip_dict", "mapping", "(inverts a (dict|dictionary)|swaps the keys and values of a (dict|dictionary))", "return {value: key for key, value in {0}.items()}", lambda r: ({"a": 1, "b": 2, v.word(r): 3},)),
    ("merge_dicts|combine_dicts|join_dicts|merge", "a,b", "(merges|combines) two (dicts|dictionaries)(; the second wins|, the second one wins|)", "return {**{0}, **{1}}", lambda r: (_mapping(r)[0], {"x": 1})),
    ("sum_values|total_values|add_values|values_sum", "mapping", "returns the (sum|total) of (all |the |)values (in|of) a (dict|dictionary)", "return sum({0}.values())", _mapping),
    ("best_key|max_key|key_of_max|winner", "mapping", "returns the key (with|that has) the (largest|highest|biggest|maximum) value (in|of) a (dict|dictionary)", "return max({0}, key={0}.get)", _mapping),
    ("sorted_keys|keys_in_order|ordered_keys|list_keys", "mapping", "returns (a sorted list of |)the (sorted |)keys of a (dict|dictionary)", "return sorted({0})", _mapping),
    ("filter_values|keep_above|values_above|over_limit", "mapping,limit", "(keeps only|returns only|keeps) the entries of a (dict|dictionary) (whose value is|with a value) (greater than|above|larger than) (a limit|{1})", "return {key: value for key, value in {0}.items() if value > {1}}", lambda r: (_mapping(r)[0], r.randint(1, 40))),
    ("to_dict|make_dict|build_dict|dict_from_lists", "keys,values", "(builds|makes|creates) a (dict|dictionary) (from|out of) (a list of keys and a list of values|two lists)", "return dict(zip({0}, {1}))", lambda r: (["a", "b"], [1, 2])),
    ("group_by_length|by_size|group_words|words_by_length", "words", "groups (a list of |)(words|strings) by (their |)length( in a dict| into a dictionary|)", "groups = {}\nfor w in {0}:\n    groups.setdefault(len(w), []).append(w)\nreturn groups", lambda r: ([v.word(r) for _ in range(5)],)),
    ("has_key|contains_key|key_exists|knows", "mapping,key", "(checks|tells|returns) (whether|if) a key is in a (dict|dictionary)", "return {1} in {0}", lambda r: (_mapping(r)[0], v.word(r))),
    ("lookup|get_value|value_or_zero|get_or_zero", "mapping,key", "returns the value of a key in a (dict|dictionary)(,| and) 0 if (it|the key) is (missing|not there)", "return {0}.get({1}, 0)", lambda r: (_mapping(r)[0], v.word(r))),
    ("greet|hello_to|make_greeting|say_hello", "name", "returns (a greeting|the greeting|the text) 'Hello, NAME!' (for|with) a (given |)name", "return 'Hello, ' + {0} + '!'", lambda r: (r.choice(v.FIRST),)),
)  # fmt: skip

CLASSICS = tuple(
    (row[0].split("|")[0], row[0], row[1].split(","), row[2], row[3].split("\n"), row[4])
    for row in _ROWS
)


def classic_program(rng: random.Random) -> Program:
    key, names, params, says, body, sample = rng.choice(CLASSICS)
    return Program(f"classic-{key}", says, names, list(params), list(body), sample)
