"use strict";
// The server's statistics, live. They come as server-sent events over fetch and not EventSource,
// which cannot send a key. All texts go in as text nodes: agents write them.

const SECONDS = 120; // of the chart
const IDLE_SECONDS = 60; // agents that have been idle for longer come last
const SILENCE = 10000; // ms without a sample, then the connection is made anew
const COLOURS = 8;

const byId = (id) => document.getElementById(id);
const colours = new Map(); // client -> its place in the palette
const series = new Map(); // client -> [[seconds, tokens per second], ...]
let before = null;

function make(name, attributes, ...children) {
  const svg = ["line", "polyline", "text"].includes(name);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "–");
const gib = (bytes) => (bytes / 2 ** 30).toFixed(1);

function colour(client) {
  if (!colours.has(client)) colours.set(client, colours.size % COLOURS);
  return `var(--agent${colours.get(client)})`;
}

function bar(...parts) {
  const made = make("span", { class: "bar" });
  for (const part of parts) {
    const piece = make("i", {});
    piece.style.width = `${100 * Math.min(Math.max(part, 0), 1)}%`;
    made.append(piece);
  }
  return made;
}

function phase(agent) {
  const tool = agent.tools[agent.tools.length - 1];
  if (agent.phase === "prompt") return `prompt ${Math.round(100 * agent.prompt_progress)} %`;
  if (agent.phase === "calling a tool" && tool) return `calling ${tool}`;
  if (agent.phase !== "idle") return agent.phase;
  if (agent.finish === "tool_calls" && tool) return `tool ${tool}`;
  return ["stop", "tool_calls", null].includes(agent.finish) ? "idle" : `idle (${agent.finish})`;
}

const asleep = (agent) => agent.phase === "idle" && agent.unchanged_s > IDLE_SECONDS;

function inOrder(agents) {
  const key = (agent) => `${asleep(agent) ? 1 : 0} ${agent.client} ${agent.id}`;
  return [...agents].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

// Rows and milliseconds of a step: since the sample before, or since the start.
function rates(engine, earlier) {
  const since = earlier || { steps: 0, rows: 0, step_us: 0 };
  const steps = engine.steps - since.steps;
  if (steps > 0) {
    return [(engine.rows - since.rows) / steps, (engine.step_us - since.step_us) / steps / 1000];
  }
  return earlier ? rates(engine, null) : [0, 0];
}

function tile(label, value, ...more) {
  return make("div", { class: "tile" }, make("span", { class: "soft" }, label),
    make("b", {}, value), ...more);
}

function tiles(sample) {
  const made = [];
  const speed = sample.conversations.reduce((sum, a) => sum + a.recent_tokens_per_second, 0);
  made.push(tile("tokens/s", speed.toFixed(1)));
  const engine = sample.engine;
  if (engine) {
    const [rows, ms] = rates(engine, before && before.engine);
    const pages = engine.pages_total;
    made.push(
      tile("running", `${engine.running}`), tile("queued", `${engine.waiting}`),
      tile("pool in use", percent(engine.pages_used, pages),
        bar(engine.pages_used / pages, engine.pages_cached / pages),
        make("span", { class: "soft" }, `${percent(engine.pages_cached, pages)} kept`)),
      tile("step", `${ms.toFixed(1)} ms`), tile("rows per step", rows.toFixed(1)));
  }
  for (const gpu of sample.gpus) {
    const name = `GPU ${gpu.index}`;
    if (gpu.load !== null) made.push(tile(`${name} load`, percent(gpu.load, 1), bar(gpu.load)));
    if (gpu.memory_used !== null) {
      made.push(tile(`${name} memory`, `${gib(gpu.memory_used)} GiB`,
        bar(gpu.memory_used / gpu.memory_total),
        make("span", { class: "soft" }, `of ${gib(gpu.memory_total)} GiB`)));
    }
    if (gpu.power !== null) made.push(tile(`${name} power`, `${Math.round(gpu.power)} W`));
    if (gpu.temperature !== null) made.push(tile(`${name} temperature`, `${gpu.temperature} °C`));
  }
  byId("tiles").replaceChildren(...made);
}

function rows(agent) {
  const dot = make("span", { class: "dot" });
  dot.style.background = colour(agent.client);
  const kind = asleep(agent) ? "asleep" : "";
  const number = (text) => make("td", { class: "number" }, text);
  const cached = agent.prompt_tokens ? agent.cached_tokens / agent.prompt_tokens : 0;
  const numbers = make("tr", { class: `agent ${kind}` },
    make("td", {}, dot, agent.client), make("td", {}, phase(agent)),
    number(agent.recent_tokens_per_second.toFixed(1)), number(whole(agent.context_used)),
    make("td", {}, bar(cached), percent(agent.cached_tokens, agent.prompt_tokens)),
    number(percent(agent.accepted, agent.drafted)), number(`${agent.turns}`),
    number(`${agent.tool_calls}`));
  const cell = make("td", { colspan: 8 });
  if (agent.task) cell.append(make("span", {}, agent.task));
  if (agent.latest) cell.append(make("span", { class: "latest" }, agent.latest.slice(-240)));
  return cell.childNodes.length ? [numbers, make("tr", { class: `words ${kind}` }, cell)]
    : [numbers];
}

function remember(sample, now) {
  const speeds = new Map([...series.keys()].map((client) => [client, 0]));
  for (const agent of sample.conversations) {
    const sum = (speeds.get(agent.client) || 0) + agent.recent_tokens_per_second;
    speeds.set(agent.client, sum);
  }
  for (const [client, speed] of speeds) {
    const points = series.get(client) || [];
    series.set(client, points);
    points.push([now, speed]);
    while (points[0][0] < now - SECONDS) points.shift();
    if (!points.some((point) => point[1] > 0)) series.delete(client); // nothing to draw
  }
}

// A round number at or above the largest value.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return power * [1, 2, 5, 10].find((step) => step * power >= value);
}

function chart(now) {
  const svg = byId("chart");
  const width = svg.clientWidth, height = svg.clientHeight;
  const left = 40, bottom = 18, top = 8;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const highest = Math.max(0, ...[...series.values()].flat().map((point) => point[1]));
  const limit = ceiling(highest);
  const x = (at) => width - 4 - ((now - at) / SECONDS) * (width - left - 4);
  const y = (value) => height - bottom - (value / limit) * (height - bottom - top);
  const made = [];
  for (const value of [0, limit / 2, limit]) {
    made.push(make("line", { x1: left, x2: width - 4, y1: y(value), y2: y(value) }));
    made.push(make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, `${value}`));
  }
  for (const [ago, anchor] of [[SECONDS, "start"], [SECONDS / 2, "middle"], [0, "end"]]) {
    made.push(make("text", { x: x(now - ago), y: height - 3, "text-anchor": anchor },
      ago ? `${ago} s ago` : "now"));
  }
  for (const [client, points] of series) {
    const line = points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
    const drawn = make("polyline", { points: line.join(" ") });
    drawn.style.stroke = colour(client);
    made.push(drawn);
  }
  svg.replaceChildren(...made);
}

function show(sample) {
  const up = Math.floor(sample.uptime_s);
  const clock = [up / 3600, (up / 60) % 60, up % 60]
    .map((part) => String(Math.floor(part)).padStart(2, "0")).join(":");
  byId("model").textContent = sample.model;
  byId("about").textContent = `on ${sample.backend}, ${sample.agents} agents, context `
    + `${whole(sample.context)}, up ${clock}, version ${sample.version}`;
  const now = performance.now() / 1000;
  tiles(sample);
  remember(sample, now);
  chart(now);
  const agents = inOrder(sample.conversations);
  const none = make("tr", {}, make("td", { colspan: 8, class: "soft" },
    "No agent has asked for anything yet."));
  byId("agents").replaceChildren(...(agents.length ? agents.flatMap(rows) : [none]));
  before = sample;
}

// ---- the stream ----------------------------------------------------------------------------------

class KeyNeeded extends Error {}

async function receive() {
  const control = new AbortController();
  const key = sessionStorage.getItem("key");
  let timer = setTimeout(() => control.abort(), SILENCE);
  try {
    const response = await fetch("/v1/stats/stream?interval=1", {
      headers: key ? { authorization: `Bearer ${key}` } : {}, signal: control.signal });
    if (response.status === 401) throw new KeyNeeded();
    if (!response.ok) throw new Error((await response.json()).error.message);
    byId("trouble").textContent = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the server has closed the connection");
      clearTimeout(timer);
      timer = setTimeout(() => control.abort(), SILENCE);
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        if (event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
      }
    }
  } finally {
    clearTimeout(timer);
    control.abort();
  }
}

async function askForKey() {
  const form = byId("key");
  form.hidden = false;
  await new Promise((resolve) => { form.onsubmit = (event) => { event.preventDefault(); resolve(); }; });
  sessionStorage.setItem("key", form.querySelector("input").value);
  form.hidden = true;
}

async function run() {
  for (;;) {
    try {
      await receive();
    } catch (error) {
      if (error instanceof KeyNeeded) {
        await askForKey();
        continue;
      }
      byId("trouble").textContent = `No statistics: ${error.message}. Trying again.`;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

run();
