// Trajectories: the index at once, the texts block by block when they are asked for.
// All of it is text of models and tasks: it goes into the page as text nodes, never as markup.

const at = (id) => document.getElementById(id);
const make = (tag, kind, ...content) => {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  node.append(...content);
  return node;
};

const AUTHORS = ["prompt", "policy", "environment", "forced"];
const index = JSON.parse(document.querySelector("script.index").textContent);
const elements = document.querySelectorAll("script.block");
const parsed = [];

const rows = index.rows.map((row, id) => {
  const [run, step, group, member, question, reward, correct, ending, searches, written, alarms] = row;
  return { id, run, step, group, member, question, reward, correct, ending, searches, written, alarms, block: 0 };
});
index.blocks.forEach((start, number) => {
  const end = index.blocks[number + 1] ?? rows.length;
  for (let id = start; id < end; id++) rows[id].block = number;
});

const block = (number) => (parsed[number] ??= JSON.parse(elements[number].textContent));
const questionOf = (row) => index.questions[row.question][2];
const originOf = (row) => index.runs[row.run] + (row.step === null ? "" : `, step ${row.step}`);
const rewardOf = (row) => (row.reward === null ? "no reward" : `reward ${row.reward.toFixed(2)}`);
const count = (number, thing, ending = "s") => `${number} ${thing}${number === 1 ? "" : ending}`;
// How an evaluation was sampled, where its name says so.
const wayOf = ({ run, step }) => (step === null ? index.runs[run].split(", ")[1] ?? "" : "");
const sameQuestion = (row) => rows.filter((other) => other.question === row.question);
const sameGroup = (row) =>
  sameQuestion(row).filter((other) => other.run === row.run && other.step === row.step && other.group === row.group);

// What the index does not say of a trajectory; `segments` are pairs of an author and a text.
function detailOf(row) {
  const { texts, rows: details } = block(row.block);
  const found = details[row.id - index.blocks[row.block]];
  const segments = [];
  for (let place = 0; place < found.segments.length; place += 2) {
    segments.push([AUTHORS[found.segments[place]], texts[found.segments[place + 1]]]);
  }
  return { ...found, segments };
}

// The ids of a block's rows in which `needle`, in lower case, stands.
function* hitsIn(number, needle) {
  const { texts, rows: details } = block(number);
  const has = (text) => Boolean(text) && text.toLowerCase().includes(needle);
  const found = texts.map(has);
  for (const [place, detail] of details.entries()) {
    const id = index.blocks[number] + place;
    const named = index.questions[rows[id].question].some(has) || has(detail.answer) || detail.golds.some(has);
    if (named || detail.segments.some((text, odd) => odd % 2 === 1 && found[text])) yield id;
  }
}

const PAUSE_MS = 12;

// All ids with `needle`; lets the page answer in between, and ends with null when `stale()`.
async function search(needle, stale) {
  const hits = new Set();
  let began = performance.now();
  for (let number = 0; number < elements.length; number++) {
    for (const id of hitsIn(number, needle)) hits.add(id);
    if (performance.now() - began > PAUSE_MS) {
      await new Promise((resume) => setTimeout(resume));
      if (stale()) return null;
      began = performance.now();
    }
  }
  return hits;
}

// Pairs of evaluations that were sampled in the same way: the one that is to be right, the one that is to be wrong.
const pairs = (() => {
  const graded = new Set(rows.filter((row) => row.step === null && row.correct !== null).map((row) => row.run));
  const same = (a, b) => a !== b && wayOf({ run: a, step: null }) === wayOf({ run: b, step: null });
  return [...graded].flatMap((a) => [...graded].filter((b) => same(a, b)).map((b) => [a, b]));
})();

// Whether a row is of a pair's side that is asked for: right in the first, wrong in the second.
const sideOf = (row, pair) => (row.step === null && row.correct !== null ? pair.indexOf(row.run) === Number(!row.correct) : false);

// The questions that both sides of a pair have a row of.
function split(pair) {
  const sides = [new Set(), new Set()];
  for (const row of rows) if (sideOf(row, pair)) sides[pair.indexOf(row.run)].add(row.question);
  return new Set([...sides[0]].filter((question) => sides[1].has(question)));
}

const ORDERS = {
  newest: (a, b) => (b.step ?? Infinity) - (a.step ?? Infinity) || a.run - b.run,
  oldest: (a, b) => (a.step ?? Infinity) - (b.step ?? Infinity) || a.run - b.run,
  best: (a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity),
  worst: (a, b) => (a.reward ?? Infinity) - (b.reward ?? Infinity),
  longest: (a, b) => b.written - a.written,
};

// The rows that fit, in order. Bounds of steps leave evaluations out: they have none.
function select(wanted, hits) {
  const inside = (value, low, high) =>
    (low === null && high === null) || (value !== null && value >= (low ?? -Infinity) && value <= (high ?? Infinity));
  const between = wanted.pair && split(wanted.pair);
  const fits = (row) =>
    (wanted.run === null || row.run === wanted.run) &&
    (wanted.source === null || index.questions[row.question][0] === wanted.source) &&
    (wanted.ending === null || row.ending === wanted.ending) &&
    (wanted.correct === null || row.correct === wanted.correct) &&
    (wanted.alarm === null || row.alarms.includes(wanted.alarm)) &&
    (between === null || (sideOf(row, wanted.pair) && between.has(row.question))) &&
    inside(row.step, ...wanted.step) &&
    inside(row.reward, ...wanted.reward) &&
    (hits === null || hits.has(row.id));
  const order = ORDERS[wanted.order];
  // Infinity minus Infinity is not a number: such rows keep the order of their ids.
  return rows.filter(fits).sort((a, b) => order(a, b) || a.id - b.id);
}
