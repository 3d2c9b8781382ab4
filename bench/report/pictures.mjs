// Takes the pictures of the guide: node pictures.mjs REPORT.html SCREEN.ansi FOLDER. SCREEN.ansi is a terminal's screen with its colours,
// as `tmux capture-pane -e` gives it.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [report, screen, folder] = process.argv.slice(2);
const url = pathToFileURL(report).href;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
});

async function open(address, width, height) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: "light" });
  await page.goto(address);
  return page;
}

// Keeps a picture as WebP, a fourth of the size of what the browser takes.
async function keep(name, png) {
  const page = await browser.newPage();
  const data = await page.evaluate(async (source) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.85);
  }, `data:image/png;base64,${png.toString("base64")}`);
  writeFileSync(`${folder}/${name}.webp`, Buffer.from(data.split(",")[1], "base64"));
  await page.close();
}

// The terminal's colours 0 to 15, on a dark ground.
const COLOURS = [
  "#0c1117", "#f47067", "#57ab5a", "#c69026", "#539bf5", "#b083f0", "#39c5cf", "#909dab",
  "#636e7b", "#ff938a", "#6bc46d", "#daaa3f", "#6cb6ff", "#dcbdfb", "#56d4dd", "#cdd9e5",
];
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
// Fonts that stand in for a missing sign have other widths; a terminal's cells are all alike.
const cells = (text) => escaped(text).replace(/[^\x00-\x7f]/gu, (sign) => `<i>${sign}</i>`);

// Spans with the colours and weights that the codes of the screen ask for.
function html(text) {
  let [colour, bold, dim, underlined, turned] = [null, false, false, false, false];
  const pieces = text.split(/\x1b\[([0-9;]*)m/);
  let made = "";
  for (let at = 0; at < pieces.length; at++) {
    if (at % 2 === 0) {
      if (!pieces[at]) continue;
      const styles = [
        `color:${turned ? COLOURS[0] : (colour ?? COLOURS[15])}`,
        turned ? `background:${colour ?? COLOURS[15]}` : "", bold ? "font-weight:700" : "", dim ? "opacity:.65" : "",
        underlined ? "text-decoration:underline" : "",
      ];
      made += `<span style="${styles.filter(Boolean).join(";")}">${cells(pieces[at])}</span>`;
      continue;
    }
    const codes = pieces[at].split(";").map(Number);
    for (let code = codes.shift(); code !== undefined; code = codes.shift()) {
      if (code === 0) [colour, bold, dim, underlined, turned] = [null, false, false, false, false];
      else if (code === 1) bold = true;
      else if (code === 2) dim = true;
      else if (code === 4) underlined = true;
      else if (code === 7) turned = true;
      else if (code >= 30 && code <= 37) colour = COLOURS[code - 30];
      else if (code >= 90 && code <= 97) colour = COLOURS[code - 82];
      else if (code === 38 && codes.shift() === 5) colour = COLOURS[codes.shift()];
      else if (code === 39) colour = null;
    }
  }
  return made;
}

const first = await open(url, 1180, 1000);
await keep("report", await first.screenshot());
await first.locator("figure").first().waitFor();
// Curves: the first six panels of the section about training.
const training = first.locator("#training");
const [top, sixth] = [await training.locator(".legend").first().boundingBox(), await training.locator("figure").nth(5).boundingBox()];
const curves = { x: top.x - 12, y: top.y - 8, width: top.width + 24, height: sixth.y + sixth.height - top.y + 16 };
await keep("curves", await first.screenshot({ fullPage: true, clip: curves }));

// The longest episode that the trained policy gets right.
const viewer = await open(url, 1180, 900);
await viewer.selectOption("#run", { label: "trained, greedy" });
await viewer.selectOption("#correct", "correct");
await viewer.selectOption("#order", "longest");
await viewer.waitForFunction(() => document.querySelectorAll("#detail .author-policy").length > 3);
await keep("trajectory", await viewer.locator(".split").screenshot());

const terminal = await open("about:blank", 1180, 700);
await terminal.setContent(
  `<style>i{display:inline-block;width:1ch;font-style:normal;overflow:hidden;vertical-align:top}</style>` +
    `<body style="margin:0;background:${COLOURS[0]}"><pre style="display:inline-block;margin:0;padding:14px 18px;background:${COLOURS[0]};` +
    `font:13px/1.25 'DejaVu Sans Mono',monospace">${html(readFileSync(screen, "utf8").trimEnd())}</pre>`,
);
await keep("dashboard", await terminal.locator("pre").screenshot());
await browser.close();
