# ruff: noqa: E501 (sentences)
"""Requests written by hand, in words that are not the generator's, to see how far it carries.

Each case is a conversation up to an assistant turn and what that turn must be: exact tool calls,
or text that contains something. Coding cases run as whole episodes; asserts decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def tool(name: str, description: str = "", /, **parameters: Any) -> dict[str, Any]:
    """A function tool; parameter values are JSON types or schemas; a trailing _ marks optional."""
    properties, required = {}, []
    for key, kind in parameters.items():
        properties[key.rstrip("_")] = {"type": kind} if isinstance(kind, str) else kind
        if not key.endswith("_"):
            required.append(key)
    schema = {"properties": properties, "required": required, "type": "object"}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


@dataclass(frozen=True)
class Case:
    user: str
    tools: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    contains: list[str] = field(default_factory=list)
    system: str = ""
    after: list[dict[str, Any]] = field(default_factory=list)  # messages between user and answer


@dataclass(frozen=True)
class CodingCase:
    user: str
    file: str
    asserts: list[str]
    system: str = ""


def _called(name: str, arguments: dict[str, Any], result: str) -> list[dict[str, Any]]:
    call = {"function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": result},
    ]


_LAMP = tool("dim_lamp", "Dim one lamp.", lamp="string", percent="integer")
_TEMP = tool("room_temperature", "Temperature of a room.", room="string")
_TAXI = tool("order_taxi", "Order a taxi.", street="string", passengers="integer")
_NOTE = tool("append_note", "Append a line to the notebook.", line="string")
_CUBE = tool("cube_root", "Cube root of a number.", radicand="integer")
_PING = tool("ping_host", "Is the host up?")
_CLIMATE = tool("climate_for", "Climate of a town.", town="string")
_PARCEL = tool("where_is_parcel", "Find a parcel.", parcel_number="string")
_MEMBER = tool("enrol_member", "Enrol a new member.", full_name="string")

CASES: tuple[Case, ...] = (
    Case("Bring the hallway lamp down to 30 percent. The tool is dim_lamp, lamp = hallway.", [_LAMP], [("dim_lamp", {"lamp": "hallway", "percent": 30})]),
    Case("Could somebody dim lamp 'desk' to 55 percent?", [_LAMP], [("dim_lamp", {"lamp": "desk", "percent": 55})]),
    Case("I'd like to know how warm it is in the attic right now.", [_TEMP], [("room_temperature", {"room": "attic"})]),
    Case("Check the temperature of the nursery for me, will you?", [_TEMP, _LAMP], [("room_temperature", {"room": "nursery"})]),
    Case("A cab to 'Elm Row' for 3 people, thanks.", [_TAXI], [("order_taxi", {"street": "Elm Row", "passengers": 3})]),
    Case("order_taxi please, street: Quay Lane, passengers: 2", [_TAXI, _NOTE], [("order_taxi", {"street": "Quay Lane", "passengers": 2})]),
    Case("Put this in my notebook: 'buy oat milk'", [_NOTE], [("append_note", {"line": "buy oat milk"})]),
    Case("Append the line 'call Marek at noon' to the notes.", [_NOTE, _TEMP], [("append_note", {"line": "call Marek at noon"})]),
    Case("What would cube_root(27) give me? You have a tool for it, so use it.", [_CUBE], [("cube_root", {"radicand": 27})]),
    Case("Find out cube_root(8) with the help of the tool.", [_CUBE], [("cube_root", {"radicand": 8})]),
    Case("Need the cube root of 343. Tool use is fine.", [_CUBE, _TEMP], [("cube_root", {"radicand": 343})]),
    Case("How about cube_root with 5? Please go through the tool.", [_CUBE], [("cube_root", {"radicand": 5})]),
    Case("Is the host up? Run ping_host to see.", [_PING], [("ping_host", {})]),
    Case("What's ping_host() saying? Use it.", [_PING, _CUBE], [("ping_host", {})]),
    Case("How's the climate in Oakdale, NV?", [_CLIMATE], [("climate_for", {"town": "Oakdale, NV"})]),
    Case("Going to Bergamo next week, what's the climate like there?", [_CLIMATE, _TAXI], [("climate_for", {"town": "Bergamo"})]),
    Case("Locate parcel QX-2291.", [_PARCEL], [("where_is_parcel", {"parcel_number": "QX-2291"})]),
    Case("My parcel number is 77120. Any idea where it is?", [_PARCEL], [("where_is_parcel", {"parcel_number": "77120"})]),
    Case("Enrol a member by the name of '山田水子'.", [_MEMBER], [("enrol_member", {"full_name": "山田水子"})]),
    Case("We've got a new member called '东方贸易' (East Trade), a Chinese business. Enrol them.", [_MEMBER, _NOTE], [("enrol_member", {"full_name": "东方贸易"})]),
    Case("Dim lamp 'bed' to 10 and lamp 'door' to 90.", [_LAMP], [("dim_lamp", {"lamp": "bed", "percent": 10}), ("dim_lamp", {"lamp": "door", "percent": 90})]),
    Case("How warm is the cellar? And ping the host too.", [_TEMP, _PING], [("room_temperature", {"room": "cellar"}), ("ping_host", {})]),
    Case("Toggle the fan: set_fan with on=true and speed=2.5", [tool("set_fan", "Control the fan.", on="boolean", speed="number")], [("set_fan", {"on": True, "speed": 2.5})]),
    Case("Store the list [3, 1, 4] under the key 'pi' via store_list.", [tool("store_list", "Store a list.", key="string", entries={"type": "array", "items": {"type": "integer"}})], [("store_list", {"key": "pi", "entries": [3, 1, 4]})]),
    Case("Move the robot: direction left, steps 4.", [tool("move_robot", "Move the robot.", direction={"type": "string", "enum": ["left", "right"]}, steps="integer")], [("move_robot", {"direction": "left", "steps": 4})]),
    Case("How warm is it in the attic?", [_TEMP], contains=["19"], after=_called("room_temperature", {"room": "attic"}, "19 degrees")),
    Case("cube_root(64)?", [_CUBE], contains=["4"], after=_called("cube_root", {"radicand": 64}, "4")),
    Case("Where's parcel QX-2291?", [_PARCEL], contains=["Lyon depot"], after=_called("where_is_parcel", {"parcel_number": "QX-2291"}, "Lyon depot")),
    Case("What's the climate like in Oakdale?", [_CLIMATE], contains=["mild"], after=_called("climate_for", {"town": "Oakdale"}, "It's mild.")),
    Case("Ping the host.", [_PING], contains=["unreachable"], after=_called("ping_host", {}, "Error: host unreachable")),
    Case("Brew me an espresso.", [_CUBE, _PING], contains=[""]),
    Case("Hello there, friend!", contains=["?"]),
    Case("hey", contains=[""]),
    Case("Good afternoon. I hope you are well.", contains=[""]),
    Case("Hiya, what can you do for me?", [_LAMP], contains=[""], system="You are a helpful home assistant."),
    Case("3 plus 4 makes what?", contains=["7"]),
    Case("Japan's capital city is called what?", contains=["Tokyo"]),
    Case("If big is one end, what is the opposite?", contains=["small"]),
    Case("Everyone calls me Nadia. Now, what is my name?", contains=["Nadia"]),
    Case("Text: The bench is in Porto. The clock is in Riga.\nWhere is the clock?", contains=["Riga"]),
    Case("Give JSON with 'name' and 'age' for this: The name is Ivo, aged 44.", contains=['{"name": "Ivo", "age": 44}']),
    Case("As JSON with the keys city and price, please: city: Oslo, price: 12.5.", contains=['{"city": "Oslo", "price": 12.5}']),
    Case("Whose turn is it? The code for the parser is missing, somebody has to write the program.", contains=["coder"], system="You are the manager of these workers: coder, translator. Reply with the name of the next worker, or FINISH."),
    Case("Please find some sources about tea.", contains=["researcher"], system="You supervise: researcher, coder. Answer only with the name of who acts next, or DONE when nothing is left."),
    Case("Somebody should translate the letter for Omar.", [tool("transfer_to_translator", "Hand over to the translator."), tool("transfer_to_coder", "Hand over to the coder.")], [("transfer_to_translator", {})]),
    Case("List three animals for me.", contains=[""]),
    Case("A tale with a heron in it, if you please.", contains=[""]),
    Case("Any colour at random, go!", contains=[""]),
)  # fmt: skip

CODING: tuple[CodingCase, ...] = (
    CodingCase("Your job: a function `vowel_total(text)` in `vowels.py`. It tells how many vowels a text has. Tests live in `test_vowels.py`, run them.", "vowels.py", ["vowel_total('banana') == 3", "vowel_total('xyz') == 0"]),
    CodingCase("Create `turnaround.py` containing `turnaround(s)`, which gives back the string s reversed. Check your work with test_turnaround.py.", "turnaround.py", ["turnaround('abc') == 'cba'"]),
    CodingCase("We're missing a helper in `maths.py`: `fact(n)` should compute the factorial of n. Please add it and run the tests.", "maths.py", ["fact(5) == 120", "fact(0) == 1"]),
    CodingCase("Please produce even_numbers.py. In it, even_numbers(items) returns a list of just the even numbers of items. The tests: test_even_numbers.py.", "even_numbers.py", ["even_numbers([1, 2, 3, 4]) == [2, 4]"]),
    CodingCase("Write a Python function `largest_of(values)` in largest.py returning the biggest value in a list. Then run test_largest.py and tell me the outcome.", "largest.py", ["largest_of([3, 9, 2]) == 9"]),
    CodingCase("`gcd_of(a, b)` is needed in numbers_util.py: the greatest common divisor of two integers. Test it with test_numbers_util.py please.", "numbers_util.py", ["gcd_of(12, 18) == 6"]),
    CodingCase("Implement prime checking. File: primes.py, function: is_prime_number(n), returns whether n is a prime number. Tests: test_primes.py", "primes.py", ["is_prime_number(7) is True", "is_prime_number(9) is False", "is_prime_number(1) is False"]),
    CodingCase("Could you write `swap_keys(mapping)` in swap.py, a function that swaps the keys and the values of a dictionary? test_swap.py holds tests.", "swap.py", ["swap_keys({'a': 1}) == {1: 'a'}"]),
    CodingCase("Write a function fib(n) in fib.py that returns the n-th Fibonacci number, with fib(0) = 0 and fib(1) = 1. The tests are in test_fib.py.", "fib.py", ["fib(10) == 55", "fib(0) == 0"]),
    CodingCase("Write a function unique_items(items) in unique.py that returns the list without duplicates, keeping the order. Run the tests when you are done.", "unique.py", ["unique_items([1, 2, 1, 3]) == [1, 2, 3]"]),
    CodingCase("Build word_tally.py with word_tally(text): a dictionary with how often each word occurs in text. test_word_tally.py must pass.", "word_tally.py", ["word_tally('a b a') == {'a': 2, 'b': 1}"]),
    CodingCase("In `temps.py` I want `c_to_f(c)`, converting Celsius to Fahrenheit. Make sure test_temps.py passes.", "temps.py", ["c_to_f(100) == 212"]),
)  # fmt: skip
