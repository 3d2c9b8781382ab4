// The list, of which only the rows in sight are in the page; filters; keys.

const ROW_PIXELS = 58;
const SPARE_ROWS = 6;
const TYPING_MS = 150;

const list = at("list");
const holder = at("rows");
let fitting = [];
let place = 0;
let hits = null;
let searches = 0;
// The pair of evaluations that is looked for.
let versus = null;

function option(row, position) {
  const mark = row.correct === null ? "" : row.correct ? "✓ " : "✗ ";
  const head = make("b", row.correct === null ? "" : row.correct ? "right" : "wrong", mark + (row.reward === null ? "–" : row.reward.toFixed(2)));
  const node = make("div", "row", make("div", "", head, " ", questionOf(row)), make("small", "", `${originOf(row)} · ${index.endings[row.ending]} · ${count(row.searches, "search", "es")}${row.alarms.length ? " · alarm" : ""}`));
  node.id = `row-${row.id}`;
  node.style.top = `${position * ROW_PIXELS}px`;
  node.setAttribute("role", "option");
  node.setAttribute("aria-posinset", position + 1);
  node.setAttribute("aria-setsize", fitting.length);
  node.setAttribute("aria-selected", String(position === place));
  node.onclick = () => { move(position); if (narrow()) open(); };
  return node;
}

function draw() {
  const first = Math.max(0, Math.floor(list.scrollTop / ROW_PIXELS) - SPARE_ROWS);
  const last = Math.ceil((list.scrollTop + list.clientHeight) / ROW_PIXELS) + SPARE_ROWS;
  holder.style.height = `${fitting.length * ROW_PIXELS}px`;
  holder.replaceChildren(...fitting.slice(first, last).map((row, offset) => option(row, first + offset)));
  const current = fitting[place];
  if (current && at(`row-${current.id}`)) list.setAttribute("aria-activedescendant", `row-${current.id}`);
  else list.removeAttribute("aria-activedescendant");
}

// Whether `one` is what the pair that is looked for sets against `row`.
const opposite = (one, row) => versus !== null && one.run !== row.run && sideOf(one, versus);

// Selects the row at a position and brings it into sight.
function move(position) {
  place = Math.max(0, Math.min(position, fitting.length - 1));
  const top = place * ROW_PIXELS;
  if (top < list.scrollTop) list.scrollTop = top;
  const below = top + ROW_PIXELS - list.clientHeight;
  if (below > list.scrollTop) list.scrollTop = below;
  draw();
  show(fitting[place] ?? null);
}

// Selects a row wherever it is; filters that hide it are cleared.
function choose(row) {
  if (!fitting.includes(row)) {
    at("filters").reset();
    needle = "";
    hits = null;
    refresh();
  }
  move(fitting.indexOf(row));
}

function open() {
  detail.focus({ preventScroll: true });
  if (narrow()) detail.scrollIntoView();
}

const narrow = () => matchMedia("(max-width: 820px)").matches;

// Shows what fits the filters; `kept` stays selected where it does.
function refresh(kept) {
  const text = (id) => at(id).value;
  const chosen = (id) => (text(id) === "" ? null : Number(text(id)));
  versus = pairs[chosen("pair")] ?? null;
  const wanted = {
    run: chosen("run"),
    source: text("source") || null,
    ending: chosen("ending"),
    correct: text("correct") ? text("correct") === "correct" : null,
    alarm: chosen("alarm"),
    pair: versus,
    step: [chosen("step-low"), chosen("step-high")],
    reward: [chosen("reward-low"), chosen("reward-high")],
    order: text("order"),
  };
  fitting = select(wanted, hits);
  const rewards = fitting.filter((row) => row.reward !== null).map((row) => row.reward);
  const mean = rewards.length ? ` · mean reward ${(rewards.reduce((sum, one) => sum + one, 0) / rewards.length).toFixed(3)}` : "";
  at("count").textContent = `${fitting.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} trajectories${mean}`;
  list.scrollTop = 0;
  move(Math.max(0, fitting.indexOf(kept)));
}

async function seek() {
  const turn = ++searches;
  needle = at("q").value.trim().toLowerCase();
  if (needle) at("count").textContent = "Searching…";
  const found = needle ? await search(needle, () => turn !== searches) : null;
  if (turn !== searches) return;
  hits = found;
  refresh(shown);
}

function offer(id, names, values = names.map((_, value) => value)) {
  at(id).replaceChildren(new Option("any", ""), ...names.map((name, place) => new Option(name, values[place])));
  at(id).closest("label").hidden = names.length < (id === "alarm" ? 1 : 2);
}

const TYPES = "input, select, textarea";
const STEPS = { j: 1, k: -1 };
const LEAPS = {
  ArrowDown: () => place + 1,
  ArrowUp: () => place - 1,
  PageDown: () => place + Math.floor(list.clientHeight / ROW_PIXELS),
  PageUp: () => place - Math.floor(list.clientHeight / ROW_PIXELS),
  Home: () => 0,
  End: () => fitting.length - 1,
};

// Whether a key was one of the viewer's.
function press(key, target) {
  if (key === "Escape" && at("viewer").contains(target)) list.focus();
  else if (target.matches(TYPES)) return false;
  else if (key === "/") at("q").select();
  else if (key in STEPS) move(place + STEPS[key]);
  else if (key in VIEWS && shown) change(key);
  else if (target !== list) return false;
  else if (key in LEAPS) move(LEAPS[key]());
  else if (key === "Enter") open();
  else return false;
  return true;
}

function begin() {
  offer("run", index.runs);
  const sources = [...new Set(index.questions.map(([source]) => source))];
  offer("source", sources, sources);
  offer("ending", index.endings);
  offer("alarm", index.alarms);
  offer("pair", pairs.map(([a, b]) => `${index.runs[a]} right, ${index.runs[b]} wrong`));
  at("correct").closest("label").hidden = rows.every((row) => row.correct === null);
  at("static").hidden = true;
  at("viewer").hidden = false;
  let typing;
  at("filters").oninput = (event) => {
    clearTimeout(typing);
    if (event.target.id === "q") typing = setTimeout(seek, TYPING_MS);
    else refresh();
  };
  at("filters").onreset = () => setTimeout(seek);
  at("filters").onsubmit = (event) => { event.preventDefault(); seek().then(() => list.focus()); };
  list.onscroll = () => requestAnimationFrame(draw);
  addEventListener("resize", draw);
  addEventListener("keydown", (event) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && press(event.key, event.target)) event.preventDefault();
  });
  const linked = () => rows[Number(/^#t(\d+)$/.exec(location.hash)?.[1] ?? -1)];
  addEventListener("hashchange", () => linked() && choose(linked()));
  refresh();
  if (linked()) choose(linked());
  document.documentElement.dataset.ready = Math.round(performance.now());
}

begin();
