// The selected trajectory: its transcript, its group side by side, a comparison.

// Longer texts that the policy did not write are folded.
const FOLDED_CHARACTERS = 700;
const PREVIEW_CHARACTERS = 160;

const VIEWS = { t: ["Transcript", transcript], g: ["Group", group], c: ["Compare", compare] };
const detail = at("detail");
let shown = null;
let view = "t";
let needle = "";
// What finds the accepted answers of the shown trajectory.
let golden = null;
// With which run and step a question is compared.
let partner = null;

function show(row) {
  shown = row;
  if (!row) return detail.replaceChildren(make("p", "caption", "No trajectory fits these filters."));
  golden = wordsOf(detailOf(row).golds);
  const title = make("h3", "", ...marked(questionOf(row)));
  const link = make("a", "", `#${row.id}`);
  link.href = `#t${row.id}`;
  link.title = "Link to this trajectory";
  const line = make("p", "outcome", `${originOf(row)} · group ${row.group}, member ${row.member} · `, link);
  const bar = make("div", "views");
  bar.setAttribute("role", "toolbar");
  bar.setAttribute("aria-label", "View");
  for (const [key, [name]] of Object.entries(VIEWS)) bar.append(viewButton(key, name));
  const back = make("button", "back", "List");
  back.type = "button";
  back.onclick = () => at("list").focus();
  bar.append(back);
  detail.replaceChildren(title, line, bar, ...VIEWS[view][1](row));
  detail.scrollTop = 0;
}

function viewButton(key, name) {
  const button = make("button", "", name);
  button.type = "button";
  button.dataset.view = key;
  button.setAttribute("aria-pressed", String(key === view));
  button.setAttribute("aria-keyshortcuts", key);
  button.onclick = () => change(key);
  return button;
}

// Another view of the same trajectory; the focus stays on its button.
function change(key) {
  const held = detail.contains(document.activeElement);
  view = key;
  show(shown);
  if (held) detail.querySelector(`[data-view="${key}"]`).focus();
}

const quoted = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// A pattern of whole words for any of the texts, the longest first; null without one.
function wordsOf(texts) {
  const some = texts.map((text) => text.trim()).filter(Boolean).sort((a, b) => b.length - a.length);
  return some.length ? new RegExp(`(?<![\\p{L}\\p{N}])(${some.map(quoted).join("|")})(?![\\p{L}\\p{N}])`, "iu") : null;
}

// Pieces of text, what a pattern's one group finds in them marked; null finds nothing.
const highlighted = (pieces, pattern, kind) => (pattern ? pieces.flatMap((piece) =>
  (typeof piece === "string" ? piece.split(pattern).map((part, place) => (place % 2 ? make("mark", kind, part) : part)) : piece)) : pieces);

// The text with the words searched for and the accepted answers marked.
function marked(text) {
  return highlighted(highlighted([text], needle ? new RegExp(`(${quoted(needle)})`, "iu") : null, ""), golden, "gold");
}

function segment(author, text, content = marked(text)) {
  const body = make("pre", "", ...content);
  const short = text.length <= FOLDED_CHARACTERS || author === "policy" || author === "forced";
  const hit = needle && text.toLowerCase().includes(needle);
  if (short || hit) return make("div", `segment author-${author}`, make("span", "", author), body);
  const preview = text.slice(0, PREVIEW_CHARACTERS).trim() + " …";
  const head = make("summary", "", make("span", "", author), " ", make("small", "", preview));
  if (golden?.test(text)) head.append(" ", make("mark", "gold", "gold"));
  return make("details", `segment author-${author}`, head, body);
}

function facts(row, found) {
  const [source, id] = index.questions[row.question];
  const parts = Object.entries(found.parts).map(([name, value]) => `${name} ${value ?? "not finite"}`);
  const mates = sameGroup(row);
  const pairs = [
    ["outcome", `${rewardOf(row)}${aboveMean(row, mates)} · ${found.ending}`],
    ["task", `${source} / ${id}`],
    ["gold", found.golds.join(" | ")],
    ["answer", found.answer ?? "none"],
    ["score", parts.join(" · ") || "none"],
    ["conduct", `${count(found.turns, "turn")}, ${count(row.searches, "search", "es")}`],
    ["tokens", found.tokens.map((count, author) => `${count} ${AUTHORS[author]}`).join(", ")],
    ["alarms", row.alarms.map((kind) => index.alarms[kind]).join(", ")],
  ];
  const list = make("dl");
  for (const [name, value] of pairs.filter(([, value]) => value)) {
    list.append(make("dt", "", name), make("dd", "", ...marked(value)));
  }
  return list;
}

// The reward less the group's mean: the advantage before an algorithm scales it.
function aboveMean(row, mates) {
  const rewards = mates.filter((mate) => mate.reward !== null).map((mate) => mate.reward);
  if (row.reward === null || rewards.length < 2) return "";
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  const above = row.reward - mean;
  return ` (${above < 0 ? "−" : "+"}${Math.abs(above).toFixed(2)} to the group's mean)`;
}

function transcript(row) {
  const found = detailOf(row);
  return [facts(row, found), ...found.segments.map(([author, text]) => segment(author, text))];
}

function group(row) {
  const mates = sameGroup(row).sort((a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity) || a.id - b.id);
  const prompt = detailOf(row).segments.filter(([author]) => author === "prompt");
  const caption = mates.length === 1
    ? "The only recorded sample of this question."
    : `${mates.length} recorded samples of this question, the highest reward first.`;
  const columns = mates.map((mate) => {
    const found = detailOf(mate);
    const open = make("button", "", `member ${mate.member}`);
    open.type = "button";
    open.onclick = () => { choose(mate); change("t"); };
    const line = make("p", "outcome", `${rewardOf(mate)}${aboveMean(mate, mates)} · ${found.ending}`);
    const texts = found.segments.filter(([author]) => author !== "prompt").map(([author, text]) => segment(author, text));
    const column = make("section", mate === row ? "column current" : "column", open, line, ...texts);
    column.setAttribute("aria-label", `Member ${mate.member}, ${rewardOf(mate)}`);
    return column;
  });
  const strip = make("div", "columns", ...columns);
  strip.tabIndex = 0;
  strip.setAttribute("role", "group");
  strip.setAttribute("aria-label", "Samples of the group side by side");
  return [make("p", "caption", caption), ...prompt.map(([author, text]) => segment(author, text)), strip];
}

function compare(row) {
  const others = sameQuestion(row).filter((other) => other !== row);
  if (!others.length) return [make("p", "caption", "No other trajectory has this question.")];
  const other = others.reduce((best, one) => (likeness(one, row) > likeness(best, row) ? one : best));
  const choice = make("select");
  for (const one of others) {
    const option = make("option", "", `${originOf(one)}, member ${one.member}, ${rewardOf(one)}`);
    option.value = one.id;
    option.selected = one === other;
    choice.append(option);
  }
  choice.onchange = () => {
    partner = rows[Number(choice.value)];
    detail.querySelector(".columns").replaceWith(sides(row, partner));
  };
  return [make("label", "", "with ", choice), sides(row, other)];
}

// How good a partner of a comparison `one` is: the other side of the pair that is looked for, of the run and step compared with last,
// else of another checkpoint, sampled in the same way, the same member.
function likeness(one, row) {
  const kept = partner && one.run === partner.run && one.step === partner.step;
  const elsewhere = one.run !== row.run || one.step !== row.step;
  return 16 * opposite(one, row) + 8 * Boolean(kept) + 4 * elsewhere + 2 * (wayOf(one) === wayOf(row)) + (one.member === row.member);
}

// The n-th text of an author stands beside the n-th of the same author on the other side.
function sides(row, other) {
  const pair = [row, other].map((one) => ({ row: one, found: detailOf(one), nodes: [] }));
  const numbered = pair.map(({ found }) => number(found.segments));
  pair.forEach((side, place) => {
    const theirs = new Map(numbered[1 - place].map(([author, text, nth]) => [author + nth, text]));
    for (const [author, text, nth] of numbered[place]) {
      side.nodes.push(compared(author, text, theirs.get(author + nth), place));
    }
  });
  const columns = pair.map(({ row: one, found, nodes }) => {
    const head = make("p", "outcome", make("b", "", originOf(one)), ` · member ${one.member} · ${rewardOf(one)} · ${found.ending}`);
    return make("section", "column", head, make("p", "outcome", `answer: ${found.answer ?? "none"}`), ...nodes);
  });
  return make("div", "columns two", ...columns);
}

function number(segments) {
  const counts = {};
  return segments.map(([author, text]) => [author, text, (counts[author] = (counts[author] ?? 0) + 1)]);
}

function compared(author, text, theirs, place) {
  if (theirs === text && author !== "policy") {
    const head = make("summary", "", make("span", "", author), " ", make("small", "", "the same on both sides"));
    return make("details", `segment author-${author}`, head, make("pre", "", ...marked(text)));
  }
  if (theirs === undefined) return segment(author, text);
  const own = difference(...(place ? [theirs, text] : [text, theirs]))[place];
  const nodes = own.flatMap(([piece, same]) => (same ? marked(piece) : make(place ? "ins" : "del", "", ...marked(piece))));
  return make("div", `segment author-${author}`, make("span", "", author), make("pre", "", ...nodes));
}
