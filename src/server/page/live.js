// Keeps the page up to date, sends its forms without leaving it, and lets a range be drawn in a chart.
"use strict";

const EVERY = 2000;
const said = document.getElementById("said");
let revision = document.body.dataset.revision;

function say(text, bad) {
  said.textContent = text;
  said.classList.toggle("bad", Boolean(bad));
}

// How far running sweeps are, without drawing anything anew.
function progress(sweeps) {
  for (const sweep of sweeps) {
    const row = document.querySelector(`[data-sweep="${CSS.escape(sweep.name)}"]`);
    const bar = row && row.querySelector("progress");
    if (!bar || !sweep.progress) continue;
    const { requests, requests_done, level } = sweep.progress;
    bar.max = Math.max(requests, 1);
    bar.value = requests_done;
    const place = level ? ` · ${level.model}, ${level.prompt_tokens} tokens, ${level.load}` : "";
    row.querySelector(".at").textContent = `${requests_done} of ${requests} requests${place}`;
  }
}

// Takes over the parts of the page that changed; what is open stays open, and the focus where it is.
async function redraw() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.getElementById(part.id);
    if (!old || old.innerHTML === part.innerHTML || busy(old)) continue;
    const open = [...old.querySelectorAll("details[open]")].map((details) => details.id);
    const focus = old.contains(document.activeElement) ? key(document.activeElement) : null;
    old.replaceChildren(...part.childNodes);
    open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    if (focus) [...old.querySelectorAll("a, button, summary")].find((one) => key(one) === focus)?.focus();
  }
  revision = fresh.body.dataset.revision;
}

const key = (element) => element.getAttribute("aria-label") || element.getAttribute("href") || element.textContent;
// Somebody types there, or draws.
const busy = (part) => part.contains(drawn?.chart ?? null) || (part.contains(document.activeElement) && document.activeElement.matches("input"));

let lost = false;
async function look() {
  if (document.hidden) return;
  try {
    const answer = await fetch("api/v1/sweeps");
    if (!answer.ok) throw new Error(`${answer.status}`);
    const { revision: latest, sweeps } = await answer.json();
    if (String(latest) !== revision) await redraw();
    progress(sweeps);
    if (lost) say("Connected again.");
    lost = false;
  } catch {
    if (!lost) say("tokenprobe does not answer: what is shown is out of date.", true);
    lost = true;
  }
}
(async function watch() {
  await look();
  setTimeout(watch, EVERY);
})();
document.addEventListener("visibilitychange", look);

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("[data-ask]")) return;
  event.preventDefault();
  try {
    const answer = await fetch(form.action, { method: "POST", headers: { accept: "text/plain" } });
    say((await answer.text()).trim(), !answer.ok);
    await redraw();
  } catch {
    say("tokenprobe does not answer.", true);
  }
});

// A range drawn in a chart is shown alone.
let drawn = null;
function place(chart, event) {
  const { left, width } = chart.getBoundingClientRect();
  const x = ((event.clientX - left) / width) * Number(chart.dataset.width);
  return Math.min(Math.max(x, Number(chart.dataset.left)), Number(chart.dataset.right));
}
document.addEventListener("pointerdown", (event) => {
  const chart = event.target.closest?.(".moments");
  if (!chart || event.button !== 0) return;
  drawn = { chart, from: place(chart, event) };
  chart.setPointerCapture(event.pointerId);
});
document.addEventListener("pointermove", (event) => {
  if (!drawn) return;
  const to = place(drawn.chart, event);
  const brush = drawn.chart.querySelector(".brush");
  brush.setAttribute("x", Math.min(drawn.from, to));
  brush.setAttribute("width", Math.abs(to - drawn.from));
});
document.addEventListener("pointerup", (event) => {
  if (!drawn) return;
  const { chart, from } = drawn;
  const to = place(chart, event);
  drawn = null;
  if (Math.abs(to - from) < 6) return void chart.querySelector(".brush").setAttribute("width", 0);
  const { left, right } = chart.dataset;
  const share = (x) => (x - left) / (right - left);
  const at = (x) => Math.round(Number(chart.dataset.from) + share(x) * (chart.dataset.to - chart.dataset.from));
  const there = new URL(document.getElementById("range-form").action);
  for (const { name, value } of document.querySelectorAll("#range-form input[type=hidden]")) there.searchParams.set(name, value);
  there.searchParams.set("from", at(Math.min(from, to)));
  there.searchParams.set("to", at(Math.max(from, to)));
  there.hash = "history-title";
  location.assign(there);
});
