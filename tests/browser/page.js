// The status page in a real browser. Each test has a prober of its own, or shares the demo; what a page says in its
// console, or loads from elsewhere, fails the test.
"use strict";

const { spawn } = require("node:child_process");
const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { chromium } = require("playwright-core");
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const shots = process.env.SHOTS;
const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "tokenprobe-page-"));
const running = [];
const WIDE = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };

// Starts the program and waits for the line that says where it listens.
function start(args, pattern) {
  const child = spawn(process.env.PROGRAM, args, { stdio: ["ignore", "pipe", "pipe"] });
  running.push(child);
  let text = "";
  return new Promise((resolve, reject) => {
    const look = (chunk) => {
      text += chunk;
      const found = pattern.exec(text);
      if (found) resolve({ child, address: found[1] });
    };
    child.stderr.on("data", look);
    child.stdout.on("data", look);
    child.on("exit", (code) => reject(new Error(`exit ${code}: ${text}`)));
  });
}

async function serve(args) {
  const { child, address } = await start(["serve", "--web.listen-address", "127.0.0.1:0", ...args], /address=(\S+)/);
  const base = `http://${address}/`;
  await until("ready", async () => (await fetch(`${base}-/ready`)).ok);
  return { child, base };
}

function configured(name, text, ...args) {
  const file = path.join(scratch, `${name}.toml`);
  fs.writeFileSync(file, text);
  return serve(["--config.file", file, ...args]);
}

async function until(what, holds) {
  for (let tries = 0; tries < 600; tries++) {
    if (await holds().catch(() => false)) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`waited in vain until ${what}`);
}

// A page that fails the test for every word in its console and every request to elsewhere.
async function open(browser, url, { colorScheme = "light", viewport = WIDE, javaScriptEnabled = true, quiet = true, status = 200 } = {}) {
  const context = await browser.newContext({ colorScheme, viewport, javaScriptEnabled });
  const page = await context.newPage();
  page.complaints = [];
  if (quiet) {
    page.on("console", (message) => page.complaints.push(`console: ${message.text()}`));
    page.on("requestfailed", (request) => page.complaints.push(`failed: ${request.url()} ${request.failure()?.errorText}`));
  }
  page.on("pageerror", (error) => page.complaints.push(`error: ${error.message}`));
  page.on("request", (request) => {
    if (new URL(request.url()).host !== new URL(url).host) page.complaints.push(`elsewhere: ${request.url()}`);
  });
  const answer = await page.goto(url);
  assert.equal(answer.status(), status, url);
  return page;
}

async function close(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

// Texts of charts that are cut off, or that lie over one another.
function unreadable() {
  const found = [];
  for (const chart of document.querySelectorAll("svg.chart")) {
    const frame = chart.getBoundingClientRect();
    const texts = [...chart.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    for (const [index, [text, box]] of texts.entries()) {
      if (box.left < frame.left || box.right > frame.right || box.top < frame.top - 1 || box.bottom > frame.bottom) found.push(`cut off: ${text}`);
      for (const [other, there] of texts.slice(index + 1)) {
        const across = Math.min(box.right, there.right) - Math.max(box.left, there.left);
        const down = Math.min(box.bottom, there.bottom) - Math.max(box.top, there.top);
        // Boxes are higher than the letters in them.
        if (across > 1 && down > box.height / 3) found.push(`over one another: ${text}, ${other}`);
      }
    }
  }
  return found;
}

// Accessible by axe's rules, no wider than the window, and readable.
async function sound(page, name) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const told = found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html).join(" ")}`);
  assert.deepEqual(told, [], name);
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= window, `${name}: ${content} px of content in a window of ${window} px`);
  assert.deepEqual(await page.evaluate(unreadable), [], name);
  if (shots) await page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
}

// Every page in both themes, at phone width and on a wall.
async function everywhere(browser, base, pages) {
  const looks = [
    ["light", { colorScheme: "light" }],
    ["dark", { colorScheme: "dark" }],
    ["phone", { colorScheme: "dark", viewport: PHONE }],
    ["phone-light", { colorScheme: "light", viewport: PHONE }],
    ["wall", { colorScheme: "dark", viewport: { width: 1920, height: 1080 } }],
  ];
  for (const [look, options] of looks) {
    for (const [name, url] of Object.entries(pages)) {
      const page = await open(browser, base + url, options);
      await sound(page, `${name}-${look}`);
      await close(page);
    }
  }
}

const sweep = (name, target, extra) => `
[[sweeps]]
name = "${name}"
targets = ["${target}"]
prompt_tokens = [100]
concurrency = [1, 2]
requests_per_level = 4
max_tokens = 4
${extra}
`;

const tests = {
  async "every page of the demo is sound"(browser, demo) {
    await until("a ladder ended", async () => {
      const { ladders } = await (await fetch(`${demo.base}api/v1/status`)).json();
      return ladders.some((ladder) => ladder.target === "chat");
    });
    await until("a run is kept", async () => (await (await fetch(`${demo.base}api/v1/runs`)).json()).runs.some((run) => run.result));
    const { runs } = await (await fetch(`${demo.base}api/v1/runs`)).json();
    await everywhere(browser, demo.base, {
      overview: "",
      model: "model?target=chat&model=qwen3-8b",
      failures: "failures",
      runs: "runs",
      run: `run?id=${runs.find((run) => run.result).run}`,
      configuration: "configuration",
    });
  },

  async "a sweep is run, paused and resumed, and its progress is live"(browser, demo) {
    const page = await open(browser, demo.base);
    const row = page.locator('[data-sweep="ladder"]');
    await row.getByRole("button", { name: "Pause: ladder" }).click();
    await page.locator("#said", { hasText: "sweep ladder is paused" }).waitFor();
    await row.getByRole("button", { name: "Resume: ladder" }).click();
    await page.locator("#said", { hasText: "sweep ladder is resumed" }).waitFor();
    await until("the ladder rests", async () => {
      const { sweeps } = await (await fetch(`${demo.base}api/v1/sweeps`)).json();
      return !sweeps.find((sweep) => sweep.name === "ladder").running;
    });
    await row.getByRole("button", { name: "Run now: ladder", disabled: false }).click();
    await page.locator("#said", { hasText: "sweep ladder starts" }).waitFor();
    const bar = row.locator("progress");
    await bar.waitFor();
    const first = await bar.evaluate((bar) => bar.value);
    await until("the bar moves", async () => (await bar.evaluate((bar) => bar.value)) > first);
    assert.match(await row.locator(".at").textContent(), /of 128 requests/);
    await sound(page, "running");
    await close(page);
  },

  async "what was measured meanwhile is shown without a reload"(browser, demo) {
    const page = await open(browser, demo.base);
    await page.evaluate(() => { globalThis.loadedOnce = true; });
    const trend = page.locator(".models tr", { hasText: "chat" }).first().locator(".trend svg");
    await trend.waitFor();
    const before = await trend.getAttribute("aria-label");
    await until("the trend moves", async () => (await trend.getAttribute("aria-label")) !== before);
    assert.equal(await page.evaluate(() => globalThis.loadedOnce), true);
    assert.match(await page.locator("#summary").textContent(), /4 +good|sweeps? running/);
    await close(page);
  },

  async "what is not there is told"(browser, demo) {
    const missing = { "no-model": ["model?target=chat&model=gpt-9", "There is no model gpt-9 at chat"], "no-run": ["run?id=999999", "has no run 999999"] };
    for (const [name, [url, words]] of Object.entries(missing)) {
      // A browser logs the answer's status itself.
      const page = await open(browser, demo.base + url, { status: 404, quiet: false });
      assert.ok((await page.locator("main").textContent()).includes(words), name);
      await sound(page, name);
      await close(page);
    }
  },

  async "everything can be done by keyboard and without script"(browser, demo) {
    const page = await open(browser, demo.base);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "content");
    const seen = new Set();
    for (let presses = 0; presses < 60; presses++) {
      await page.keyboard.press("Tab");
      seen.add(await page.evaluate(() => document.activeElement.getAttribute("aria-label") || document.activeElement.textContent.trim()));
    }
    for (const name of ["qwen3-14b", "Pause: quick", "Find a target or model"]) assert.ok(seen.has(name), `${name} among ${[...seen]}`);
    await close(page);
    const plain = await open(browser, demo.base, { javaScriptEnabled: false });
    await plain.getByRole("searchbox").fill("14b");
    await plain.getByRole("button", { name: "Find", exact: true }).click();
    assert.equal(await plain.locator(".models tbody tr").count(), 2);
    await plain.getByRole("button", { name: "Pause: quick" }).click();
    await plain.waitForURL(demo.base);
    await plain.locator('[data-sweep="quick"]', { hasText: "paused" }).waitFor();
    await plain.getByRole("button", { name: "Resume: quick" }).click();
    await plain.getByRole("button", { name: "Pause: quick" }).waitFor();
    await close(plain);
  },

  async "a range is drawn in a chart"(browser, demo) {
    const page = await open(browser, `${demo.base}model?target=chat&model=qwen3-8b`);
    const chart = page.locator(".moments").first();
    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    const [from, to] = await chart.evaluate((chart) => [Number(chart.dataset.from), Number(chart.dataset.to)]);
    await page.mouse.move(box.x + box.width * 0.4, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.8, box.y + box.height / 2, { steps: 5 });
    if (shots) await page.screenshot({ path: path.join(shots, "brushing.png") });
    await page.mouse.up();
    await page.waitForURL(/from=\d+&to=\d+/);
    const drawn = new URL(page.url()).searchParams;
    assert.ok(Number(drawn.get("from")) > from && Number(drawn.get("to")) < to, page.url());
    assert.equal(drawn.get("model"), "qwen3-8b");
    await close(page);
  },

  async "an empty prober says what is missing"(browser) {
    const target = '[[targets]]\nname = "t"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n';
    const prober = await configured("empty", target + sweep("s", "t", 'every = "1d"'));
    await everywhere(browser, prober.base, { "empty-overview": "", "empty-model": "model?target=t&model=m", "empty-runs": "runs" });
    const page = await open(browser, prober.base);
    assert.equal(await page.getByRole("button", { name: /Run now/ }).count(), 0);
    assert.match(await page.locator("#sweeps").textContent(), /--web.enable-lifecycle/);
    await close(page);
    prober.child.kill();
  },

  async "a failing endpoint shows its errors and timelines"(browser) {
    const archive = path.join(scratch, "failing.db");
    const target = `[archive]\npath = "${archive}"\n[[targets]]\nname = "down"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n`;
    const prober = await configured("failing", target + sweep("s", "down", 'every = "1d"\nrun_on_start = true'), "--web.enable-lifecycle");
    await until("it failed", async () => (await (await fetch(`${prober.base}api/v1/failures`)).json()).failures.length > 0);
    await everywhere(browser, prober.base, { failing: "", "failing-model": "model?target=down&model=m", "failing-list": "failures" });
    const page = await open(browser, `${prober.base}failures`);
    const first = page.locator("details").first();
    await first.locator("summary").press("Enter");
    await first.getByText("trace id").waitFor();
    assert.equal(await first.locator(".timeline svg").count(), 1);
    await sound(page, "failing-opened");
    const opened = await first.getAttribute("id");
    const listed = await page.locator("details").count();
    await fetch(`${prober.base}api/v1/sweeps/s/run`, { method: "POST" });
    await until("new failures are listed", async () => (await page.locator("details").count()) > listed);
    assert.deepEqual(await page.locator("details[open]").evaluateAll((all) => all.map((one) => one.id)), [opened], "what is open stays open");
    await page.goto(`${prober.base}model?target=down&model=m`);
    assert.match(await page.locator(".levels").textContent(), /not run: /);
    await close(page);
    prober.child.kill();
    await until("it is gone", async () => prober.child.exitCode !== null || prober.child.signalCode !== null);
  },

  async "a lost archive is told of, and the rest is shown"(browser) {
    const archive = path.join(scratch, "lost");
    const target = `[archive]\npath = "${path.join(archive, "a.db")}"\n[[targets]]\nname = "t"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n`;
    const prober = await configured("lost", target + sweep("s", "t", 'every = "1d"\nrun_on_start = true'));
    await until("it failed", async () => (await (await fetch(`${prober.base}api/v1/models`)).json()).models[0].state === "failing");
    for (const [name, url] of Object.entries({ overview: "", model: "model?target=t&model=m", failures: "failures", runs: "runs" })) {
      const page = await open(browser, prober.base + url);
      assert.match(await page.locator("main").textContent(), /archive|No such file/i, name);
      await sound(page, `lost-${name}`);
      await close(page);
    }
    prober.child.kill();
  },

  async "a prober that goes away is told of"(browser) {
    const target = '[[targets]]\nname = "t"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n';
    const prober = await configured("going", target + sweep("s", "t", 'every = "1d"'));
    const page = await open(browser, prober.base, { quiet: false });
    prober.child.kill("SIGKILL");
    await page.locator("#said.bad", { hasText: "does not answer" }).waitFor();
    await sound(page, "gone");
    await close(page);
  },

  async "250 models are drawn at once"(browser) {
    const models = Array.from({ length: 5 }, (_, n) => `"org/a-model-with-a-long-name-${n}-instruct-2507"`).join(", ");
    const names = Array.from({ length: 50 }, (_, n) => `endpoint-${String(n).padStart(2, "0")}`);
    const targets = names.map((name) => `[[targets]]\nname = "${name}"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = [${models}]\n`);
    const all = names.map((name) => `"${name}"`).join(", ").replace(/^"|"$/g, "");
    const archive = `[histograms]\nmax_series = 200000\n[archive]\npath = "${path.join(scratch, "huge.db")}"\n`;
    const prober = await configured("huge", archive + targets.join("") + sweep("s", all, 'every = "1d"\nrun_on_start = true'));
    await until("all failed", async () => {
      const { models } = await (await fetch(`${prober.base}api/v1/models`)).json();
      return models.filter((model) => model.state === "failing").length > 200;
    });
    const begun = Date.now();
    const page = await open(browser, prober.base);
    assert.equal(await page.locator(".models tbody tr").count(), 250);
    console.log(`    drawn in ${Date.now() - begun} ms`);
    assert.match(await page.locator("#summary").textContent(), /\d+ failing/);
    await sound(page, "huge-light");
    await page.getByRole("searchbox").fill("endpoint-07");
    await page.getByRole("searchbox").press("Enter");
    await page.waitForURL(/find=endpoint-07/);
    assert.equal(await page.locator(".models tbody tr").count(), 5);
    await close(page);
    for (const [look, options] of [["phone", { viewport: PHONE }], ["dark", { colorScheme: "dark" }]]) {
      const page = await open(browser, prober.base, options);
      await sound(page, `huge-${look}`);
      await close(page);
    }
    prober.child.kill();
  },
};

(async function main() {
  const begun = Date.now();
  const [demo, browser] = await Promise.all([
    serve(["--demo", "--web.enable-lifecycle"]),
    chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] }),
  ]);
  const failed = [];
  for (const [name, test] of Object.entries(tests)) {
    const since = Date.now();
    try {
      await test(browser, demo);
      console.log(`ok   ${name} (${((Date.now() - since) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed.push(name);
      console.log(`FAIL ${name}\n${error.stack}`);
    }
  }
  await browser.close();
  for (const child of running) child.kill();
  fs.rmSync(scratch, { recursive: true, force: true });
  console.log(`${Object.keys(tests).length - failed.length} passed, ${failed.length} failed in ${((Date.now() - begun) / 1000).toFixed(0)} s`);
  process.exit(failed.length ? 1 : 0);
})();
