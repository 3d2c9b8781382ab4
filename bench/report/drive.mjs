// Drives the report, the retriever's search page, the page that follows a run and that of an environment server in headless Chromium,
// with the keyboard where there is a key: node drive.mjs REPORT.html SERVER_URL RUN_URL ENVIRONMENT_URL SHOTS. Prints a line per check; the exit code is 1 when one failed.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [report, server, live, environment, shots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const url = pathToFileURL(report).href;
const TRAJECTORIES = 10000;
const INTERACTIVE_MS = 3000;
const ANSWER_MS = 500;
// TIMES=printed leaves both to the reader: a machine that does other work as well promises no times, and a step may take longer there.
const timesCount = process.env.TIMES !== "printed";
const STEP_MS = timesCount ? 10000 : 60000;
const PHONE = { width: 390, height: 844 };
const WIDTHS = [400, 768, 1280];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
  ],
});
let checks = 0;
const failures = [];

function check(name, passed, found = "") {
  checks += 1;
  const line = `${passed ? "pass" : "FAIL"}  ${name}${found === "" ? "" : `  (${found})`}`;
  if (!passed) failures.push(line);
  console.log(line);
}

// A page in a context of its own; whatever it logs or asks of another place is a failure.
async function visit(name, address, options, steps) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const said = [];
  const asked = [];
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(error.message));
  page.on("request", (request) => asked.push(request.url()));
  page.setDefaultTimeout(STEP_MS);
  try {
    await page.goto(address);
    await steps(page);
  } catch (error) {
    check(`${name}: to its end`, false, error.message.split("\n")[0]);
  }
  await page.screenshot({ path: `${shots}/${name.replaceAll(" ", "-")}.png` });
  const home = address.startsWith("file:") ? [address] : [];
  const strange = asked.filter((one) => (home.length ? !home.includes(one.split("#")[0]) : !one.replace(/^blob:/, "").startsWith(new URL(address).origin)));
  check(`${name}: nothing on the console`, said.length === 0, said.join("; "));
  check(`${name}: no request to another place`, strange.length === 0, strange.join(", "));
  await context.close();
}

const fitting = async (page) => Number((await page.textContent("#count")).split(" of ")[0].replaceAll(",", ""));
const held = (page) => page.evaluate(() => document.activeElement.id);
const selected = (page) => page.getAttribute("[role=option][aria-selected=true]", "id");
const headed = (page) => page.textContent("#detail h3");
const asWideAsTheScreen = (page) => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);

// Milliseconds until the page has done what `act` asks of it and drawn it.
async function timed(page, act) {
  const began = performance.now();
  await act();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  return performance.now() - began;
}

await visit("wide", url, {}, async (page) => {
  const ready = Number(await page.getAttribute("html", "data-ready"));
  check("interactive in time", ready > 0 && (!timesCount || ready < INTERACTIVE_MS), `${ready} ms`);
  check("all trajectories are there", (await fitting(page)) >= TRAJECTORIES, await page.textContent("#count"));
  check("only rows in sight are in the page", (await page.locator("[role=option]").count()) < 60);
  check("accepted answers are marked", (await page.locator("#detail mark.gold").count()) > 0);
  check("the first one is shown", (await page.locator("#detail .segment").count()) > 1);
  check("the list without the script is hidden", !(await page.isVisible("#static")));
  check("the alarm is shown as text", (await page.textContent(".alarm")).includes("</script> & so on."));
  check("the half-written line is told of", (await page.textContent("header")).includes("half written"));
  const all = await fitting(page);
  await page.selectOption("#correct", "wrong");
  const wrong = await fitting(page);
  check("wrong answers", wrong > 0 && wrong < all, wrong);
  check("the list shows no other", (await page.locator("[role=option] b.right").count()) === 0);
  await page.selectOption("#ending", { label: "out of turns" });
  const cut = await fitting(page);
  check("of them those out of turns", cut > 0 && cut < wrong, cut);
  const took = await timed(page, () => page.fill("#step-low", "1000"));
  check("from a step on", (await fitting(page)) < cut, await fitting(page));
  check("a filter answers at once", !timesCount || took < ANSWER_MS, `${took.toFixed(0)} ms`);
  await page.fill("#reward-low", "1");
  check("a range of rewards", (await fitting(page)) === 0);
  await page.click("#filters button[type=reset]");
  await page.waitForFunction((count) => document.getElementById("count").textContent.startsWith(count), all.toLocaleString("en"));
  await page.selectOption("#alarm", { index: 1 });
  check("steps that raised an alarm", (await fitting(page)) === 16, await fitting(page));
});

await visit("contents", url, {}, async (page) => {
  const titles = await page.locator("main > section > h2").allTextContents();
  const links = (await page.locator("nav a").allTextContents()).map((text) => text.trim());
  check("the contents name every section", links.length > 2 && links.join() === titles.join(), links.join(", "));
  await page.locator("nav a").last().click();
  const top = () => page.evaluate(() => document.querySelector(location.hash).getBoundingClientRect().top);
  check("a link of the contents leads to its section", (await top()) < 900, await page.evaluate(() => location.hash));
});

await visit("pairs", url, {}, async (page) => {
  const all = await fitting(page);
  const names = await page.locator("#pair option").allTextContents();
  check("each pair is there both ways round", names.length > 2 && names.length % 2 === 1, `${names.length - 1} pairs`);
  let chosen = 1;
  for (; chosen < names.length; chosen++) {
    await page.selectOption("#pair", { index: chosen });
    if ((await fitting(page)) > 0) break;
  }
  const found = await fitting(page);
  check("questions that one got right and another wrong", found > 1 && found < all, `${found} with ${names[chosen]}`);
  await page.focus("#list");
  await page.keyboard.press("c");
  const sides = await page.locator("#detail .two b").allTextContents();
  const named = sides.every((side) => names[chosen].includes(side));
  check("the comparison sets the two against each other", sides.length === 2 && sides[0] !== sides[1] && named, sides.join(" | "));
});

await visit("keyboard", url, {}, async (page) => {
  await page.keyboard.press("/");
  check("/ goes to the search", (await held(page)) === "q");
  await page.keyboard.type("try 7");
  const fewer = (all) => Number.parseInt(document.getElementById("count").textContent.replaceAll(",", ""), 10) < all;
  await page.waitForFunction(fewer, TRAJECTORIES);
  check("texts are searched", (await page.locator("#detail mark:not(.gold)").count()) > 0, await page.textContent("#count"));
  await page.keyboard.press("Escape");
  check("Escape goes to the list", (await held(page)) === "list");
  const before = await selected(page);
  await page.keyboard.press("j");
  const next = await selected(page);
  check("j goes on", next !== before);
  check("the list names its active option", (await page.getAttribute("#list", "aria-activedescendant")) === next);
  await page.keyboard.press("ArrowUp");
  check("ArrowUp goes back", (await selected(page)) === before);
  await page.keyboard.press("End");
  const place = Number(await page.getAttribute("[aria-selected=true]", "aria-posinset"));
  check("End goes to the last", place === (await fitting(page)), place);
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  check("Enter goes into the trajectory", (await held(page)) === "detail");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  check("the focus is visible", outline !== "none", outline);
  await page.keyboard.press("g");
  const members = await page.locator("#detail .column").count();
  check("g shows the group", members > 0, `${members} members`);
  await page.keyboard.press("c");
  check("c compares", (await page.locator("#detail .two .column").count()) === 2);
  check("differences are marked", (await page.locator("#detail del, #detail ins").count()) > 0);
  await page.keyboard.press("Escape");
  check("Escape comes back", (await held(page)) === "list");
});

await visit("folds", url, {}, async (page) => {
  await page.selectOption("#order", "oldest");
  await page.focus("#list");
  await page.keyboard.press("t");
  await page.keyboard.press("Enter");
  for (let presses = 0; presses < 12; presses++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement.matches("#detail summary"))) break;
  }
  await page.keyboard.press("Enter");
  check("Enter unfolds a long text", (await page.locator("#detail details[open]").count()) === 1);
  const link = await page.getAttribute("#detail a", "href");
  const title = await headed(page);
  await page.goto(`${url}${link}`);
  await page.reload();
  check("a link leads to its trajectory", (await headed(page)) === title, link);
});

await visit("dark", url, { colorScheme: "dark" }, async (page) => {
  const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  check("dark follows the system", background === "rgb(18, 22, 28)", background);
  await page.locator("#list").scrollIntoViewIfNeeded();
  await page.focus("#list");
  await page.keyboard.press("g");
});

await visit("phone", url, { viewport: PHONE, hasTouch: true }, async (page) => {
  check("phone: as wide as the screen", await asWideAsTheScreen(page));
  await page.locator("[role=option]").nth(2).tap();
  check("phone: a tap opens", (await held(page)) === "detail");
  await page.locator("[data-view=c]").tap();
  check("phone: comparison fits", await asWideAsTheScreen(page));
  await page.screenshot({ path: `${shots}/phone-compare.png` });
  await page.locator(".back").tap();
  check("phone: back to the list", (await held(page)) === "list");
});

await visit("top of the page", url, {}, async () => {});
await visit("top on a phone", url, { viewport: PHONE }, async () => {});

await visit("no script", url, { javaScriptEnabled: false }, async (page) => {
  check("no script: results, curves and first trajectories", (await page.locator("#static .trajectory, svg").count()) > 12);
  check("no script: no dead controls", !(await page.isVisible("#viewer")));
});

for (const [name, options] of [
  ["search page", {}],
  ["search page dark", { colorScheme: "dark" }],
  ["search page on a phone", { viewport: PHONE }],
]) {
  await visit(name, server, options, async (page) => {
    await page.waitForFunction(() => document.querySelectorAll("#mode option").length > 0);
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    check(`${name}: / goes to the query`, (await held(page)) === "q");
    await page.keyboard.type("birth year");
    await page.keyboard.press("Enter");
    await page.waitForSelector("article");
    check(`${name}: passages with marked words`, (await page.locator("article mark").count()) > 0, await page.textContent("#state"));
    check(`${name}: the address names the query`, page.url().includes("birth"));
    check(`${name}: as wide as the screen`, await asWideAsTheScreen(page));
  });
}

await visit("search page of an absent mode", `${server}?q=birth&mode=dense`, {}, async (page) => {
  await page.waitForSelector("article");
  const told = await page.textContent("#issues");
  check("search page of an absent mode: told of", told.includes("mode dense"), told);
});

// Every page at three widths, light and dark: nothing is cut off sideways, and axe finds no fault.
for (const [name, address, ready] of [
  ["report", url, "#detail .segment"],
  ["search page", `${server}?q=birth`, "article"],
  ["live page", live, "html[data-ready] svg"],
  ["environment page", environment, "pre"],
]) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of WIDTHS) {
      const where = `${name} ${colorScheme} ${width}`;
      await visit(where, address, { colorScheme, viewport: { width, height: 900 } }, async (page) => {
        // The page that follows a run shows the report in a frame.
        const shown = address === live ? await (await page.waitForSelector("iframe")).contentFrame() : page.mainFrame();
        await shown.waitForSelector(ready, { state: "attached" });
        // What is ready may stand in a document that is still being read.
        await shown.waitForLoadState();
        const faults = [];
        for (const frame of new Set([page.mainFrame(), shown])) {
          check(`${where}: as wide as the screen`, await asWideAsTheScreen(frame));
          const wider = () => [...document.querySelectorAll(".rows")].filter((one) => one.scrollWidth > one.clientWidth).length;
          const cut = await frame.evaluate(wider);
          check(`${where}: no column of a table is out of sight`, cut === 0, cut);
          await frame.evaluate(axe);
          const found = await frame.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"], iframes: false }));
          faults.push(...found.violations.map((one) => `${one.id} at ${one.nodes.slice(0, 3).map((node) => node.target).join(", ")}`));
        }
        check(`${where}: axe finds no violation`, faults.length === 0, faults.join("; "));
      });
    }
  }
}

await browser.close();
// Once more, where whoever reads the last lines of a log sees them.
console.log([...failures, failures.length ? `${failures.length} checks failed` : "all checks passed"].join("\n"));
console.log(JSON.stringify({ bench: "report", held: failures.length === 0, figures: { checks, failures: failures.length } }));
process.exit(failures.length ? 1 : 0);
