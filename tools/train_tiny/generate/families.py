"""Tool families with a meaning: how people ask for them, what comes back, how it is told."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from . import values as v
from .text import expand
from .tool_specs import BOOLEAN, INTEGER, NUMBER, STRING, Maker, Param, Tool, enum, tool_name


@dataclass(frozen=True)
class Slot:
    """A parameter of a family: names it may carry, its schema, and how to draw a value.

    `optional` holds what a request adds when the argument is given (empty = always required).
    """

    names: str
    schema: dict[str, Any]
    make: Maker
    optional: str = ""


@dataclass(frozen=True)
class Family:
    names: str
    description: str
    slots: dict[str, Slot]
    asks: tuple[str, ...]
    results: tuple[str, ...]
    answers: tuple[str, ...]
    outcome: dict[str, Maker]

    def build(self, rng: random.Random) -> tuple[Tool, dict[str, str]]:
        """A concrete tool, and the parameter name each slot got."""
        names = {slot: expand(rng, f"({s.names})") for slot, s in self.slots.items()}
        params = [
            Param(names[slot], dict(s.schema), s.make, required=not s.optional)
            for slot, s in self.slots.items()
        ]
        opaque = rng.random() < 0.14
        name = tool_name(rng)[0] if opaque else self._name(rng)
        return Tool(name, expand(rng, self.description), params, opaque=opaque), names

    def _name(self, rng: random.Random) -> str:
        """One of the names, often changed."""
        name = rng.choice(self.names.split("|"))
        roll = rng.random()
        if roll < 0.14:
            return f"{name}_{rng.choice(('tool', 'fn', 'service', 'helper', 'v2', 'now', v.word(rng)))}"
        if roll < 0.26:
            return f"{rng.choice(('do', 'get', 'my', 'the', 'run', v.word(rng)))}_{name}"
        if roll < 0.35:
            return "_".join(reversed(name.split("_"))) if "_" in name else name + "er"
        if roll < 0.42:
            first, *others = name.split("_")
            return first + "".join(part.capitalize() for part in others)
        return name


def one_of(*options: str) -> Maker:
    return lambda rng: rng.choice(options)


def between(low: int, high: int) -> Maker:
    return lambda rng: rng.randint(low, high)


def text(names: str, make: Maker, optional: str = "") -> Slot:
    return Slot(names, STRING, make, optional)


def whole(names: str, make: Maker, optional: str = "") -> Slot:
    return Slot(names, INTEGER, make, optional)


def choice(names: str, options: list[str], optional: str = "") -> Slot:
    schema, make = enum(options)
    return Slot(names, schema, make, optional)


_SKY = one_of("sunny", "cloudy", "rainy", "windy", "foggy", "clear", "snowy", "stormy", "dry")
_DONE = ("ok", "done", "success", '{"status": "ok"}', "OK, {id}", '{"ok": true, "id": "{id}"}')
_ID = {"id": v.code}

_SHELLS = "shell|bash|terminal|sh|run_command|execute|run_shell|command_line|cmd|console"
_SHELL_TEXT = "((Run|Execute) a (shell |bash |given |)command(| in a (persistent |)shell)(| and return what it prints).|Runs what it is given in a terminal(| session).)"
_SHELL_SLOTS = {
    "command": text("command|command|cmd|line|code|script", v.command),
    "limit": whole("timeout|limit|seconds|timeout_ms", between(1, 900), " (Allow {limit}|Give it {limit}|Stop after {limit})(| at most)."),
    "folder": text("workdir|folder|cwd|directory", v.word, " (In|Do it in) {folder}."),
}  # fmt: skip
_SHELL_ASKS = (
    "(Run|Execute|Start|Try) `{command}`(.|, please.|)", "(Run|Execute) (the command|this command|this)(: | )`{command}`(.|)", "(Run|Execute|Do): {command}",
    "`{command}`", "What does `{command}` (print|say|show|give)?", "(I need|Give me|Show me) (the output|what comes out) of `{command}`.", "(In|Use|Open) (the shell|a terminal)(,|:) (run |)`{command}`.",
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    Family(
        _SHELLS, _SHELL_TEXT, _SHELL_SLOTS, _SHELL_ASKS,
        ("{out}", "{out}", "{out}\n(exit code 0)", '{"stdout": "{out}", "exit_code": 0}'),
        ("(It|The command) (prints|printed|says) {out}.", "The output is {out}.", "{out}"),
        {"out": lambda r: r.choice((v.word, v.path, v.integer, v.words, v.remark))(r)}),
    Family(
        _SHELLS, _SHELL_TEXT, _SHELL_SLOTS, _SHELL_ASKS[:3],
        ("(no output)", "", "ok", "exit code 0", "done"),
        ("Done(.|: the command ran.)", "(I ran it|It ran|The command ran)(.| without output.)"),
        {}),
    Family(
        "weather_report|forecast|city_forecast|check_weather|lookup_weather|fetch_forecast|weather|temperature_at",
        "(Get|Look up|Fetch) the (current |)(weather|forecast|temperature) (at|for|in) a (location|city|place).",
        {"place": text("location|city|place|where|town", v.place),
         "unit": choice("unit|units|scale", ["celsius", "fahrenheit"], " (Use|In) {unit}."),
         "days": whole("days|n_days", between(1, 10), " For the next {days} days.")},
        ("(What's|What is|How is|How's) the (weather|forecast|temperature) (in|at|for) {place}( today| now| right now|)?",
         "(Tell me|Show me|Check|I want to know) the weather (in|for) {place}.",
         "(Is it|Will it be) (cold|warm|raining|sunny) in {place}( today|)?",
         "I (am travelling|fly|go) to {place}. (How is the weather there|What weather can I expect)?",
         "(Weather|Forecast) for {place}(, please|)?", "How (warm|cold|hot) is it in {place}?"),
        ("It's {sky}.", "{temp} degrees and {sky}", '{"temperature": {temp}, "sky": "{sky}"}', "{sky}, {temp}C",
         "The weather in {place} is {sky} with {temp} degrees.", "{temp}, {sky}"),
        ("It is {sky} in {place}(| right now| at the moment).", "The weather in {place} is {sky}."),
        {"sky": _SKY, "temp": between(-15, 39)}),
    Family(
        "convert_currency|exchange|currency_converter|fx_convert|convert_money",
        "Convert an amount from one currency to another.",
        {"amount": Slot("amount|value|sum", NUMBER, lambda r: r.choice((v.decimal(r), r.randint(1, 5000)))),
         "from": text("from_currency|source|base|from_code", one_of("EUR", "USD", "GBP", "JPY", "CHF", "SEK", "PLN", "INR")),
         "to": text("to_currency|target|to_code|into", one_of("CAD", "AUD", "NOK", "TRY", "BRL", "CZK", "KRW", "MXN"))},
        ("(Convert|Change|Exchange) {amount} {from} (to|into) {to}.", "How much is {amount} {from} in {to}?",
         "What (do I get|would I get) in {to} for {amount} {from}?", "{amount} {from} in {to}(, please|)?"),
        ("{total}", '{"result": {total}}', "{total} {to}"),
        ("{amount} {from} is {total} {to}.", "That is {total} {to}.", "You get {total} {to}."),
        {"total": lambda r: round(r.uniform(1, 9000), 2)}),
    Family(
        "set_reminder|add_reminder|create_reminder|remind_me|new_reminder",
        "(Create|Set) a reminder.",
        {"what": text("text|message|task|what|note", v.phrase), "time": text("time|at|when", v.clock),
         "day": text("date|day", v.date, " (Date|On): {day}.")},
        ("Remind me at {time}: {q:what}.", "(Set|Create|Add) a reminder for {time} (that says|with the text) {q:what}.",
         "At {time} I (need|want) a reminder: {what}.", "(Please remind|Remind) me (about|of) {q:what} at {time}."),
        _DONE, ("(Done|OK|All set): I will remind you at {time}.", "The reminder for {time} is set."), _ID),
    Family(
        "book_table|reserve_table|make_reservation|restaurant_booking|reserve_restaurant",
        "(Book|Reserve) a table at a restaurant.",
        {"where": text("restaurant|venue|place|name", v.title), "people": whole("people|guests|party_size|seats", between(1, 12)),
         "day": text("date|day", v.date), "time": text("time|at", v.clock, " (At|Time:) {time}.")},
        ("(Book|Reserve) a table (at|in) {q:where} for {people} (people|persons|guests) on {day}.",
         "We are {people} and want to eat at {q:where} on {day}.",
         "I need a table for {people} at {q:where}, date {day}.", "Table for {people}, {q:where}, {day}(, please|)."),
        _DONE, ("(Your|The) table for {people} at {where} is (booked|reserved).", "Done: {where}, {people} people, {day}."), _ID),
    Family(
        "send_email|send_mail|email_send|mail|compose_email|write_email",
        "Send an e-mail.",
        {"to": text("to|recipient|address", v.email), "subject": text("subject|title", v.phrase),
         "body": text("body|message|content|text", v.phrase)},
        ("(Send|Write) (an email|a mail|an e-mail) to {to} with (the |)subject {q:subject} and (the |)(body|text) {q:body}.",
         "Email {to}. Subject: {subject}. Body: {body}", "Tell {to} by mail: {q:body} (subject {q:subject})."),
        (*_DONE, "Sent to {to}"), ("(The|Your) (email|mail) to {to} (was|has been) sent.", "I sent it to {to}."), _ID),
    Family(
        "add_client|register_customer|new_customer|add_contact|create_account|create_contact|register_user|add_company|create_client|new_account",
        "(Create|Add|Register) a new (customer|client|contact|account).",
        {"name": text("name|customer_name|client_name|full_name|company_name|account_name", lambda r: r.choice((v.person, v.company, v.foreign, v.foreign))(r)),
         "email": text("email|mail", v.email, " (The email|Email|Mail) is {email}.")},
        ("(Create|Add|Register|Set up) (a|the|a new) (customer|client|contact|account|company) (named|called|with the name) {q:name}.",
         "(Create|Add|Register) a (customer|client|company) (named|called) '{name}' ({extra}) - a (big|new|local|small|foreign|Chinese|Japanese|Korean|German) (company|customer|firm|client).",
         "(We have|There is) a new (customer|client): {q:name}. (Add|Register|Enter) (it|them).", "New (client|customer|account): {name}",
         "I need an account for {q:name}."),
        _DONE, ("(The|Your) (customer|account|entry) {name} (was|has been|is) (created|added).", "I added {name}.", "{name} is registered."),
        {"id": v.code, "extra": lambda r: v.title(r)}),
    Family(
        "search_documents|search|find_documents|search_docs|lookup|web_search|query_knowledge|retrieve|search_notes",
        "Search (the documents|the web|the knowledge base|notes) (for a query|and return the best hits).",
        {"query": text("query|q|search_term|text|question", v.phrase), "limit": whole("limit|max_results|top_k|n", between(1, 20), " (Give me|At most|Limit:) {limit} (hits|results).")},
        ("(Search|Look|Find documents) for {q:query}.", "(What do|Do) (we|the notes|the documents) (say|know) about {q:query}?",
         "(Find|Look up|Search) {q:query}( for me|).", "(Can you find|Is there) anything (about|on) {query}?"),
        ("{found}", '["{found}"]', "1. {found}", "Found: {found}", '{"hits": [{"text": "{found}"}]}'),
        ("I found this: {found}.", "(The search|It) (returned|found): {found}.", "There is one hit: {found}."),
        {"found": v.phrase}),
    Family(
        "translate|translate_text|translation|do_translation",
        "Translate a text into another language.",
        {"text": text("text|content|sentence|source_text", v.phrase), "lang": text("language|target_language|to|lang", lambda r: r.choice(v.LANGUAGES))},
        ("(Translate|Put) {q:text} (to|into) {lang}.", "(How do you say|What is) {q:text} in {lang}?", "I need {q:text} in {lang}."),
        ("{out}", '{"translation": "{out}"}'), ("In {lang}: {out}.", "The translation is {q:out}.", "It is {q:out} in {lang}."),
        {"out": lambda r: r.choice((v.words(r, 1, 3), v.foreign(r)))}),
    Family(
        "add_numbers|sum_two|addition|plus|adder|add_two|compute_sum",
        "(Add|Sum) two (numbers|integers).",
        {"a": whole("a|x|first|left|n1", v.integer), "b": whole("b|y|second|right|n2", v.integer)},
        ("(Add|Sum) {a} and {b}( with the tool|).", "(What's|What is) {a} plus {b}?", "(Compute|Calculate) {a} + {b}.", "How much is {a} + {b}?",
         "Use the (adder|tool) (for|on) {a} and {b}."),
        ("{sum}", '{"sum": {sum}}', "{sum}.0"), ("{a} + {b} = {sum}.", "The sum is {sum}.", "It is {sum}.", "{a} plus {b} is {sum}."),
        {"sum": v.integer}),
    Family(
        "multiply|product|times|mul|multiply_numbers",
        "(Multiply|Take the product of) two numbers.",
        {"a": whole("a|x|first|factor_1", v.integer), "b": whole("b|y|second|factor_2", v.integer)},
        ("(Multiply|Take) {a} (by|times) {b}.", "What is {a} times {b}?", "(Compute|Calculate) {a} * {b}.", "{a} x {b}?"),
        ("{out}", '{"product": {out}}'), ("{a} * {b} = {out}.", "The (product|result) is {out}.", "It is {out}."), {"out": v.integer}),
    Family(
        "start_timer|set_timer|timer|countdown", "Start a timer.",
        {"minutes": whole("minutes|duration|length|mins", between(1, 180)), "label": text("label|name", v.words, " (Call|Name) it {q:label}.")},
        ("(Set|Start) a timer (for|of) {minutes} minutes.", "Timer: {minutes} minutes.", "(Tell me when|Wake me after) {minutes} minutes( are over| have passed|)."),
        _DONE, ("(The|Your) timer (runs|is set) for {minutes} minutes.", "{minutes} minutes, starting now."), _ID),
    Family(
        "stock_price|quote|ticker_price|price_of_stock|market_price", "Get the latest price of a stock.",
        {"ticker": text("ticker|symbol|stock", lambda r: v.letters(r, 2, 5).upper())},
        ("(What is|What's) (the price of|the price for) {ticker}( stock| now|)?", "(How is|Where is) {ticker} trading?", "(Quote|Price) for {ticker}( please|)?"),
        ("{price}", '{"price": {price}}', "{ticker}: {price} USD"), ("{ticker} is at {price}.", "The price of {ticker} is {price}."), {"price": v.decimal}),
    Family(
        "order_status|lookup_order|track_order|find_order|track_package|parcel_status", "(Look up|Get) the (status|state) of an order.",
        {"order": text("order_id|id|order|order_number|reference", v.code)},
        ("(Where is|What about) (my |the |)order {order}?", "(Check|Look up|Track|Find) (order|package|parcel) {order}.", "(What is|What's) the status of {order}?", "Status of order {q:order}?"),
        ("{state}", '{"id": "{order}", "status": "{state}"}', "Order {order}: {state}"), ("(Order|Your order) {order} is {state}.", "The status of {order} is {state}."),
        {"state": lambda r: r.choice(("shipped", "delivered", "pending", "lost", "packed", "cancelled", "on its way", "returned", f"in {v.place(r)}", f"{v.place(r)} {r.choice(v.NOUNS)}", f"the {r.choice(v.NOUNS)} of {v.place(r)}"))}),
    Family(
        "set_light|control_light|lights|light_switch|switch_lamp", "(Control|Switch) the (lights|lamp) of a room.",
        {"room": text("room|zone|area", one_of("kitchen", "bedroom", "office", "hall", "garage", "bathroom", "garden", "cellar")),
         "on": Slot("on|enabled|state|power", BOOLEAN, lambda r: r.random() < 0.5),
         "level": whole("brightness|level", between(1, 100), " Brightness: {level}.")},
        ("(Set|Switch) the {room} light: on = {on}.", "{room} (lamp|light), on: {on}.", "The (lights|lamp) in the {room} should have on={on}."),
        _DONE, ("The {room} light is set.", "Done, the {room} light is (changed|updated)."), _ID),
    Family(
        "schedule_meeting|add_event|create_event|calendar_add|plan_meeting", "(Add|Create) a calendar event.",
        {"title": text("title|name|summary|topic", v.phrase), "day": text("date|day|when", v.date),
         "length": whole("duration|minutes|length", between(10, 180), " It (takes|lasts) {length} minutes."),
         "who": Slot("attendees|people|guests|participants", {"type": "array", "items": {"type": "string"}}, lambda r: [r.choice(v.FIRST) for _ in range(r.randint(1, 3))], " (Invite|Attendees:) {who}.")},
        ("(Schedule|Plan|Add|Create) (a meeting|an event|a meeting called|an event named) {q:title} (on|for) {day}.", "(Put|Enter) {q:title} (in|into) (my|the) calendar (on|for) {day}.", "Meeting {q:title}: {day}."),
        _DONE, ("{q:title} is (planned|scheduled) for {day}.", "(Done|Added): {title}, {day}."), _ID),
    Family(
        "create_ticket|open_issue|report_bug|file_ticket|new_issue", "(Create|Open) a ticket.",
        {"title": text("title|summary|subject", v.phrase), "priority": choice("priority|severity|level", ["low", "medium", "high"]),
         "owner": Slot("assignee|owner", {"anyOf": [{"type": "string"}, {"type": "null"}]}, lambda r: r.choice((None, r.choice(v.FIRST))), " Assignee: {owner}.")},
        ("(Open|Create|File) a {priority} (priority|severity) ticket: {title}.", "(Report|File) {q:title} (with|at) priority {priority}.", "New ticket, priority {priority}, title {q:title}."),
        ("{id}", '{"ticket": "{id}"}', "Created {id}"), ("(I opened|I created) ticket {id}.", "Ticket {id} (is open|was created)."), _ID),
    Family(
        "read_sensor|sensor_value|get_reading|measure|read_meter", "Read (a sensor|a meter).",
        {"sensor": text("sensor|sensor_id|device|name|meter", v.code)},
        ("(Read|Check) (sensor|meter|device) {sensor}.", "What does (sensor|meter) {sensor} (say|show|read)?", "(Current|Latest) value of {sensor}?"),
        ("{value}", '{"value": {value}}', "{sensor}={value}"), ("(Sensor|Device) {sensor} (shows|reads) {value}.", "The value of {sensor} is {value}."), {"value": v.decimal}),
    Family(
        "query_database|run_sql|sql|execute_query|db_query", "Run (an SQL query|a query) on the database.",
        {"sql": text("sql|query|statement", lambda r: r.choice(("SELECT * FROM {0}s", "SELECT COUNT(*) FROM {0}s", "SELECT name FROM {0}s WHERE id = {1}", "SELECT {2} FROM {0}s LIMIT {1}")).format(r.choice(v.NOUNS), r.randint(1, 99), r.choice(v.NOUNS)))},
        ("(Run|Execute) (this|the) (query|statement): {sql}", "(Run|Execute) {q:sql}( on the database|).", "What does {q:sql} (return|give)?"),
        ("{rows}", "[[{rows}]]", '{"rows": [{"n": {rows}}]}'), ("The query (returned|gave) {rows}.", "The result is {rows}."), {"rows": v.integer}),
    Family(
        "fetch_page|open_url|http_get|browse|download_page|read_url", "(Fetch|Open) a web page.",
        {"url": text("url|address|link|page", v.url)},
        ("(Open|Fetch|Read|Load) {url}( for me|).", "What (is|stands) (on|at) {url}?", "(Summarise|Summarize) {url}"),
        ("{found}", "<h1>{found}</h1>", '{"title": "{found}"}'), ("The page says: {found}.", "(It|The page) is about {found}."), {"found": v.phrase}),
    Family(
        "calculate|calculator|evaluate_expression|math|compute_expression", "(Evaluate|Calculate) (an arithmetic|a math) expression.",
        {"expr": text("expression|expr|formula|input_expression", lambda r: r.choice(("{0} + {1}", "{0} * {1}", "({0} + {1}) * {2}", "{0} / {1}", "{0} - {1}", "{0} * {1} + {2}", "2**{2}")).format(r.randint(1, 999), r.randint(1, 99), r.randint(2, 20)))},
        ("(Compute|Calculate|Evaluate|Work out) {expr}", "What is {expr}?", "(How much is|Solve) {expr}?", "{expr} = ?"),
        ("{out}", '{"result": {out}}', "= {out}"), ("(The result is|It is|That is) {out}.", "{expr} = {out}"), {"out": v.integer}),
    Family(
        "random_number|roll_dice|draw_number|random_int", "(Draw|Pick) a random number between two bounds.",
        {"low": whole("low|min|minimum|start", between(0, 50)), "high": whole("high|max|maximum|end", between(51, 1000))},
        ("(Draw|Pick|Give me) a random number (between|from) {low} (and|to) {high}.", "Random number, {low} to {high}."),
        ("{out}", '{"value": {out}}'), ("(The number is|You got|It is) {out}.",), {"out": v.integer}),
    Family(
        "styled_hello|greet_in_style|say_hello|write_greeting|welcome_text|greeting|greeting_maker|hello_writer|greeter|greeting_tool", "(Write|Create|Produce) a greeting in a (given|particular|certain) (style|tone|manner)( of speaking|).",
        {"style": text("style|tone|manner|answer_tone|speaking_style", lambda r: r.choice((v.word, v.pseudo_word))(r))},
        ("(Using|With) the tool, (write|make|produce|create) a {style} greeting.", "(Give me|Make|I want) a {style} greeting( with the tool|).", "(Greet|Welcome) me (in the style of|like) a {style}.", "A greeting in {style} style, please."),
        ("{out}", '{"text": "{out}"}'), ("{out}", "Here it is: {out}"), {"out": v.phrase}),
    Family(
        "ship_order|send_parcel|create_shipment|ship", "Ship an order to an address.",
        {"order": text("order_id|order|id", v.code),
         "address": Slot("address|destination|ship_to", {"type": "object", "properties": {"street": STRING, "city": STRING, "zip": STRING}, "required": ["street", "city", "zip"]},
                         lambda r: {"street": f"{r.randint(1, 200)} {r.choice(v.NOUNS).capitalize()} Street", "city": r.choice(v.CITIES), "zip": str(r.randint(10000, 99999))})},
        ("Ship (order |){order} to this address: {address}", "(Send|Ship) {order}. Address: {address}"),
        _DONE, ("Order {order} (is on its way|was shipped).", "(Shipped|Done): {order}."), _ID),
    Family(
        "rate_product|add_review|review|submit_rating", "(Rate|Review) a product.",
        {"product": text("product|product_id|item|sku", v.code), "stars": whole("stars|rating|score", between(1, 5)), "comment": text("comment|text|review", v.phrase, " Comment: {comment}.")},
        ("(Give|Rate) {product} {stars} stars.", "(I rate|My rating for) {product}: {stars} (stars|of 5).", "{stars} stars for {product}."),
        _DONE, ("(Your rating|The rating) of {stars} stars for {product} is saved.",), _ID),
    Family(
        "set_config|update_setting|change_setting|configure|set_option", "(Set|Change) a (setting|configuration value).",
        {"key": text("key|name|setting|option", v.identifier), "value": text("value|new_value|to", v.word)},
        ("(Set|Change) {q:key} to {q:value}.", "(The setting|Setting) {key} should be {q:value}.", "{key} = {value}, please."),
        _DONE, ("{key} is now {value}.", "(I set|I changed) {key} to {value}."), _ID),
    Family(
        "delete_file|remove_file|rm|erase_file", "Delete a file.",
        {"path": text("path|file|filename|file_path", v.path), "force": Slot("force|confirm", BOOLEAN, lambda r: r.random() < 0.5, " force = {force}.")},
        ("(Delete|Remove|Erase) {path}.", "(Delete|Remove) the file {q:path}.", "I no longer need {path}. (Delete|Remove) it."),
        _DONE, ("{path} (was deleted|is gone|has been removed).",), _ID),
    Family(
        "search_flights|find_flight|flights|flight_search", "Search flights.",
        {"from": text("origin|from_city|departure|source", lambda r: r.choice(v.CITIES)), "to": text("destination|to_city|arrival|target", lambda r: v.pseudo_word(r, 2, 3).capitalize()),
         "day": text("date|day|departure_date", v.date), "n": whole("passengers|seats|adults", between(1, 6), " We are {n} (people|passengers).")},
        ("(Find|Search|Look for) (a flight|flights) from {from} to {to} on {day}.", "(Is there|I need) a flight from {from} to {to}, {day}?", "Flights {from} to {to}, {day}."),
        ("{flight} at {price}", '{"flight": "{flight}", "price": {price}}'), ("(There is|I found) flight {flight} for {price}.",), {"flight": lambda r: v.letters(r, 2, 2).upper() + str(r.randint(100, 999)), "price": between(40, 990)}),
    Family(
        "get_user|lookup_user|find_person|user_info|person_details", "(Look up|Get) (a user|a person).",
        {"who": text("name|user|username|person|user_id", lambda r: r.choice((v.person, v.code))(r))},
        ("(Who is|Look up|Find) (the user |){who}.", "(Get|Show) (me |)(the details|the data|the profile) of {q:who}.", "What do we know about (user |){who}?"),
        ('{"name": "{who}", "{field}": "{val}"}', "{who}: {field} = {val}", "{field}: {val}"), ("The {field} of {who} is {val}.", "{who} has the {field} {val}."),
        {"field": one_of("role", "city", "team", "status", "plan", "group"), "val": v.word}),
    Family(
        "play_music|play_song|music|start_song", "Play a song.",
        {"song": text("song|title|track|name", v.title), "artist": text("artist|band|by", v.person, " (By|Artist:) {artist}.")},
        ("(Play|Start|Put on) {q:song}.", "I want to hear {q:song}.", "Music: {song}"), _DONE, ("Now playing {song}.", "{song} is playing."), _ID),
    Family(
        "define_word|dictionary|meaning_of|lookup_word", "Look up (the meaning of |)a word in the dictionary.",
        {"word": text("word|term|entry", v.word)},
        ("(What does|What is meant by) {q:word}( mean|)?", "(Define|Look up) {q:word}.", "Meaning of {word}?"),
        ("{out}", '{"meaning": "{out}"}', "{word}: {out}"), ("{word} means {out}.", "{q:word}: {out}."), {"out": v.words}),
    Family(
        "transfer_money|pay|bank_transfer|send_money|make_payment", "Transfer money (to an account|between accounts).",
        {"amount": Slot("amount|sum|value", NUMBER, lambda r: r.choice((v.decimal(r), r.randint(1, 3000)))), "to": text("to|recipient|account|payee", v.person), "note": text("note|reference|purpose", v.phrase, " (Note|Reference): {note}.")},
        ("(Pay|Send|Transfer) {amount} to {to}.", "{to} gets {amount}(, please transfer it|).", "(Make a payment|A transfer) of {amount} to {to}."),
        _DONE, ("{amount} (was|has been) (sent|transferred) to {to}.",), _ID),
)  # fmt: skip
