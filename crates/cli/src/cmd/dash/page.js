// The page of `stria dash`. Names come from users: they are set as text, and never as HTML.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
// Longest time between two looks at the figures.
const POLL_MS_MAX = 60000;
const byId = (id) => document.getElementById(id);
let state = null;
let span = "hour";
let points = null;
// The newest time at which `stria dash` answered.
let answeredMs = 0;
const token = takeToken();

// The token comes with the address, and leaves it at once. The tab keeps it for this address and port; a cookie would go to every port of the host.
function takeToken() {
  const address = new URL(location.href);
  const given = address.searchParams.get("token");
  if (given !== null) {
    address.searchParams.delete("token");
    history.replaceState(null, "", address.pathname + address.search + address.hash);
  }
  try {
    if (given !== null) sessionStorage.setItem("token", given);
    return given || sessionStorage.getItem("token") || "";
  } catch {
    // The browser keeps nothing: the token holds until the page is loaded again.
    return given || "";
  }
}

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Text with `commands` in backticks.
function prose(text) {
  const parts = String(text).split("`");
  return parts.map((part, n) => (n % 2 === 1 && n < parts.length - 1 ? make("code", "", part) : part));
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2)} ${units[unit]}`;
}
const perSecond = (value) => (value === null || value === undefined ? "–" : `${bytes(value)}/s`);

function count(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

function clock(ms, withDay) {
  const at = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withDay ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}` : time;
}

// A moment of these figures; with the day if that is another one.
const moment = (ms) => clock(ms, state !== null && new Date(ms).toDateString() !== new Date(state.now_ms).toDateString());

function left(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

// Replaces content only if it has changed: a selection and the place of a reader stay.
const shown = new Map();
function put(element, key, build) {
  const text = JSON.stringify(key);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  element.replaceChildren(...build());
}

// Says from when the figures of a section are, if they are not of now.
function note(element, section) {
  let text = "";
  if (section.fault && section.is_part) {
    text = `These figures are not complete: ${section.fault}.`;
  } else if (section.fault) {
    text = `It could not be looked at: ${section.fault}. `;
    text += section.at_ms ? `These figures are from ${moment(section.at_ms)}.` : "There are no figures yet.";
  } else if (section.at_ms && state.now_ms - section.at_ms > 3000 * state.every_sec + 20000) {
    text = `These figures are from ${moment(section.at_ms)}.`;
  }
  element.hidden = text === "";
  element.classList.toggle("fault", Boolean(section.fault));
  put(element, text, () => prose(text));
}

function finding(one) {
  return make(
    "li", "",
    make("span", `tag ${one.weight}`, one.weight), " ",
    ...prose(one.what),
    one.hint ? make("span", "next", "Next: ", ...prose(one.hint)) : null,
  );
}

function drawHealth() {
  note(byId("health").querySelector(".note"), state.health);
  const health = state.health.seen;
  if (!health) return;
  byId("health").className = `wide ${health.word}`;
  byId("sentence").textContent = health.sentence;
  const grave = health.findings.filter((one) => one.weight !== "advice");
  const advice = health.findings.filter((one) => one.weight === "advice");
  put(byId("findings"), grave, () => grave.map(finding));
  put(byId("advice"), advice, () => advice.map(finding));
  byId("advice-box").hidden = advice.length === 0;
  byId("advice-title").textContent = `Advice (${advice.length})`;
  document.title = `${health.word === "ok" ? "" : `${health.word}: `}${state.fsname || "Stria"}`;
}

function drawCards() {
  const health = state.health.seen;
  const rates = state.rates.seen;
  const sum = state.capacity.seen && state.capacity.seen.summary;
  const cards = [
    ["Targets", health ? `${health.targets_up} of ${health.targets}` : "–", "serve"],
    ["Clients", health ? count(health.clients) : "–", "mounts and tools"],
    ["Read", rates ? perSecond(rates.read) : "–", rates ? `in the last ${Math.round(rates.seconds)} s` : "from the second look on"],
    ["Written", rates ? perSecond(rates.written) : "–", rates ? `in the last ${Math.round(rates.seconds)} s` : "from the second look on"],
    ["Calls", rates ? `${count(rates.calls)}/s` : "–", rates ? `${count(rates.errors)}/s failed` : "from the second look on"],
    ["Space", sum && sum.bytes_total ? `${Math.round((sum.bytes_used * 100) / sum.bytes_total)} %` : "–",
      sum ? `${bytes(sum.bytes_available)} available` : "of all OSTs"],
  ];
  put(byId("cards"), cards, () => cards.map(([name, value, more]) => make("div", "", make("b", "", name), make("span", "", value), make("i", "", more))));
}

function bar(percent, className) {
  const inner = make("div", className);
  inner.hidden = percent <= 0;
  inner.style.width = `${Math.min(100, Math.max(0, percent))}%`;
  return make("div", "bar", inner);
}

function spaceRow(name, used, total, files, kind, what) {
  const percent = total > 0 ? (used * 100) / total : 0;
  const word = percent >= 97 ? "error" : percent >= 85 ? "warning" : "";
  return make(
    "div", `row ${what}`,
    make("div", "line", make("span", "", name), make("span", "", `${bytes(used)} of ${bytes(total)}, ${Math.round(percent)} %`)),
    bar(percent, word),
    make("p", "", `${count(files)} ${kind}`),
  );
}

function drawCapacity() {
  const section = byId("capacity");
  note(section.querySelector(".note"), state.capacity);
  const seen = state.capacity.seen;
  put(section.querySelector(".body"), seen, () => {
    if (!seen) return [make("p", "soft", "No target has answered yet.")];
    const rows = seen.targets.map((target) => {
      if (target.state !== "up") {
        return make("div", "row", make("div", "line", make("span", "", target.name), make("span", "tag error", "down")), make("p", "", ...prose(target.why || "")));
      }
      const name = target.draining ? `${target.name} (draining)` : target.name;
      return spaceRow(name, target.bytes_used, target.bytes_total, target.files_used, target.kind === "mdt" ? "inodes" : "objects", "");
    });
    const sum = seen.summary;
    return [spaceRow("All OSTs that answer", sum.bytes_used, sum.bytes_total, sum.files_used, "inodes", "sum"), ...rows];
  });
}

function drawTasks() {
  const section = byId("tasks");
  note(section.querySelector(".note"), state.mirrors);
  const mirrors = state.mirrors.seen || [];
  put(section.querySelector(".body"), [mirrors, state.tasks], () => {
    const tasks = state.tasks.map((task) => make(
      "div", "row",
      make("div", "line", make("b", "", `${task.name}: ${task.kind}`),
        make("span", "", [task.percent === null ? "" : `${task.percent.toFixed(0)} %`, task.left_sec === null ? "" : `about ${left(task.left_sec)} left`].filter(Boolean).join(", "))),
      task.percent === null ? null : bar(task.percent, "task"),
      make("p", "", ...prose(task.what + (task.next ? `; ${task.next}` : ""))),
    ));
    const rows = mirrors.map((mirror) => {
      const isWhole = mirror.members_in_sync === mirror.members.length;
      const members = mirror.members.map((one) => `${one.host} ${one.state}${one.is_primary ? " (primary)" : ""}${one.server === "down" ? ", its server is down" : ""}`);
      return make(
        "div", "row",
        make("div", "line", make("span", "", mirror.name), make("span", `tag ${isWhole ? "ok" : "warning"}`, `${mirror.members_in_sync} of ${mirror.members.length} in sync`)),
        make("p", "", members.join("; ")),
      );
    });
    const none = [];
    if (tasks.length === 0) none.push(make("p", "soft", "No resync, drain, scrub or comparison runs."));
    if (rows.length === 0) none.push(make("p", "soft", "There are no mirrors: each target has one copy."));
    return [...tasks, ...none, ...rows];
  });
}

function drawTop() {
  const section = byId("top");
  note(section.querySelector(".note"), state.rates);
  const titles = { job: "Jobs", user: "Users", client: "Clients", target: "Targets", call: "Calls" };
  const lists = state.rates.seen ? state.rates.seen.top : [];
  put(section.querySelector(".body"), lists, () => {
    if (!state.rates.seen) return [make("p", "soft", "Rates are known from the second look on.")];
    return lists.map((list) => {
      const head = make("tr", "", ...[titles[list.by] || list.by, "read/s", "written/s", "calls/s", "busy"].map((text) => make("th", "", text)));
      const rows = list.rows.map((row) => make("tr", "", ...[row.name, bytes(row.read), bytes(row.written), count(row.calls), `${row.busy.toFixed(row.busy < 9.95 ? 1 : 0)} %`].map((text) => make("td", "", text))));
      const table = make("table", "", make("thead", "", head), make("tbody", "", ...rows));
      return make("div", "", table, rows.length === 0 ? make("p", "soft", "No requests in the last interval.") : null);
    });
  });
}

function drawDamage() {
  const section = byId("damage");
  note(section.querySelector(".note"), state.damage);
  const seen = state.damage.seen;
  put(section.querySelector(".body"), seen, () => {
    if (!seen) return [make("p", "soft", "No OST has answered yet.")];
    if (seen.count === 0) return [make("p", "soft", "No damage is known.")];
    const places = (n) => `${n} ${n === 1 ? "place" : "places"}`;
    const says = make("p", "", ...prose([
      seen.bad > 0 ? `${places(seen.bad)} with damage. Restore the files, then \`stria damage clear\` forgets the places.` : "",
      seen.count > seen.bad ? `${places(seen.count - seen.bad)} repaired from the other member of a mirror.` : "",
    ].filter(Boolean).join(" ")));
    const head = make("tr", "", ...["file", "what", "where", "found"].map((text) => make("th", "", text)));
    const rows = seen.lines.map((line) => make("tr", "", ...[
      line.path,
      line.kind + (line.is_repaired ? ", repaired" : ""),
      line.target + (line.offset === null ? "" : `, offset ${line.offset}`),
      clock(line.found_sec * 1000, true),
    ].map((text) => make("td", "", text))));
    const more = seen.count - seen.lines.length;
    return [says, make("table", "damage", make("thead", "", head), make("tbody", "", ...rows)),
      more > 0 ? make("p", "soft", ...prose(`and ${more} more: \`stria damage list\``)) : make("p", "")];
  });
}

// A bound of the scale that reads well: some steps of a power of ten, for bytes of a part of a power of 1024.
function roundUp(value, isBytes) {
  if (!(value > 0)) return 1;
  let base = 1;
  if (isBytes) while (base * 1024 <= value) base *= 1024;
  const part = value / base;
  const ten = 10 ** Math.floor(Math.log10(part));
  const step = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * ten >= part * 0.9999);
  return step * ten * base;
}

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  return element;
}

// One missing step between two known ones is jitter of the looks; more are a gap.
function filled(values) {
  return values.map((value, n) => (value === null && n > 0 && n < values.length - 1 && values[n - 1] !== null && values[n + 1] !== null
    ? (values[n - 1] + values[n + 1]) / 2 : value));
}

function timeLabel(sec) {
  const at = new Date(sec * 1000);
  const two = (n) => String(n).padStart(2, "0");
  if (span === "week") return `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
}

// Where the time axis has marks: round times of this host's clock.
function ticks(width) {
  const count = points.read.length;
  const length = count * points.each_sec;
  const steps = [300, 600, 900, 1200, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400, 172800];
  const step = steps.find((step) => length / step <= Math.max(2, width / 110)) || 172800;
  const zone = -new Date(points.from_sec * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((points.from_sec + zone) / step) * step - zone; at < points.from_sec + length; at += step) found.push(at);
  return found;
}

function chart(id, outputId, series, format, isBytes, bound) {
  const box = byId(id);
  const [width, height] = [box.clientWidth, box.clientHeight];
  if (!points || width === 0) return;
  const lines = series.map((one) => ({ name: one.name, label: one.label, values: filled(points[one.from]) }));
  const most = Math.max(0, ...lines.flatMap((line) => line.values.map((value) => value || 0)), bound || 0);
  const top = roundUp(most, isBytes);
  const [base, roof] = [height - 18, 16];
  const x = (n) => ((n + 0.5) * width) / points.read.length;
  const y = (value) => base - (value * (base - roof)) / top;
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  [0, 0.5, 1].forEach((part) => {
    drawing.append(svg("line", { x1: 0, x2: width, y1: y(top * part), y2: y(top * part) }));
  });
  for (const line of lines) {
    let path = "";
    let area = "";
    let from = null;
    line.values.forEach((value, n) => {
      if (value === null) {
        from = null;
        return;
      }
      const at = `${x(n).toFixed(1)} ${y(value).toFixed(1)}`;
      const isLast = n + 1 === line.values.length || line.values[n + 1] === null;
      if (from === null) {
        from = n;
        path += `M${at}`;
        area += `M${x(n).toFixed(1)} ${base}L${at}`;
        if (isLast) drawing.append(svg("circle", { class: line.name, cx: x(n), cy: y(value), r: 2 }));
      } else {
        path += `L${at}`;
        area += `L${at}`;
      }
      if (isLast) area += `L${x(n).toFixed(1)} ${base}Z`;
    });
    drawing.append(svg("path", { class: `area ${line.name}`, d: area }), svg("path", { class: line.name, d: path }));
  }
  const label = (text, attributes) => {
    const element = svg("text", attributes);
    element.textContent = text;
    drawing.append(element);
  };
  label(format(top), { x: 2, y: y(top) - 4 });
  if (height > 150) label(format(top / 2), { x: 2, y: y(top / 2) - 4 });
  for (const at of ticks(width)) {
    const place = ((at - points.from_sec) * width) / (points.read.length * points.each_sec);
    if (place > 22 && place < width - 22) {
      drawing.append(svg("line", { x1: place, x2: place, y1: base, y2: base + 4 }));
      label(timeLabel(at), { x: place, y: height - 3, "text-anchor": "middle" });
    }
  }
  const output = byId(outputId);
  const tell = (n, isLast) => {
    const values = lines.map((line) => `${line.label}${line.values[n] === null ? "–" : format(line.values[n])}`).join(", ");
    return isLast ? values : `${values} at ${clock((points.from_sec + n * points.each_sec) * 1000, span !== "hour")}`;
  };
  const known = points[series[0].from].reduce((last, value, n) => (value === null ? last : n), -1);
  const rest = () => {
    output.textContent = known < 0 ? "no figures of this time" : tell(known, true);
  };
  rest();
  drawing.setAttribute("aria-label", `at most ${format(most)}`);
  const mark = svg("line", { class: "at", y1: roof, y2: base, visibility: "hidden" });
  drawing.append(mark);
  drawing.addEventListener("pointermove", (event) => {
    const n = Math.min(points.read.length - 1, Math.max(0, Math.floor((event.offsetX * points.read.length) / width)));
    mark.setAttribute("x1", x(n));
    mark.setAttribute("x2", x(n));
    mark.setAttribute("visibility", "visible");
    output.textContent = tell(n, false);
  });
  drawing.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    rest();
  });
  box.replaceChildren(drawing);
}

function drawTime() {
  if (!points) return;
  chart("chart-rates", "at-rates", [{ name: "read", label: "read ", from: "read" }, { name: "written", label: "written ", from: "written" }], perSecond, true);
  chart("chart-calls", "at-calls", [{ name: "other", label: "", from: "calls" }], (value) => `${count(value)}/s`, false);
  const total = points.total.reduce((last, value) => (value === null ? last : value), 0);
  chart("chart-used", "at-used", [{ name: "other", label: "", from: "used" }], bytes, true, total);
  chart("chart-clients", "at-clients", [{ name: "other", label: "", from: "clients" }], count, false);
}

// A look of now that takes long.
function slow() {
  return state.looking_ms > 4000 ? ` A server is slow to answer: the look of now takes ${Math.round(state.looking_ms / 1000)} s so far.` : "";
}

function draw() {
  byId("fsname").textContent = state.fsname || "Stria";
  const newest = state.health.at_ms;
  byId("when").textContent = newest
    ? `Figures of ${clock(newest, true)}, each ${state.every_sec} s.${slow()}`
    : `The first figures are on their way.${slow()}`;
  const kept = byId("time-note");
  kept.hidden = !state.history_fault;
  kept.className = "note fault";
  kept.textContent = state.history_fault || "";
  drawHealth();
  drawCards();
  drawCapacity();
  drawTasks();
  drawTop();
  drawDamage();
  const map = state.reached.seen;
  byId("footer").textContent = `stria dash ${state.version}`
    + (map ? `, cluster map ${map.map_version}, TLS ${map.tls}` : "")
    + ". Throughput and calls are those of requests at the servers; what mounts answer from their caches is not in them.";
}

function banner(text) {
  byId("banner").hidden = text === "";
  put(byId("banner"), text, () => prose(text));
}

async function get(path) {
  const answer = await fetch(path, { cache: "no-store", credentials: "omit", headers: { Authorization: `Bearer ${token}` } });
  if (answer.status === 401) throw new Error("This page needs its token: open the address that `stria dash` printed.");
  if (!answer.ok) throw new Error(`stria dash answers with status ${answer.status}.`);
  return answer.json();
}

async function look() {
  try {
    const asked = span;
    const [newState, newPoints] = await Promise.all([get("api/state.json"), get(`api/history.json?span=${asked}`)]);
    state = newState;
    if (asked === span) points = newPoints;
    answeredMs = Date.now();
    banner("");
    draw();
    drawTime();
  } catch (error) {
    const why = error instanceof TypeError ? "stria dash does not answer. Look whether it runs." : error.message;
    banner(`${why} ${answeredMs ? `The figures below are from ${clock(answeredMs, true)}.` : "There are no figures."}`);
  }
}

async function poll() {
  await look();
  setTimeout(poll, Math.min(POLL_MS_MAX, 1000 * (state ? state.every_sec : 5)));
}

document.querySelectorAll("[data-span]").forEach((button) => {
  button.addEventListener("click", () => {
    span = button.dataset.span;
    document.querySelectorAll("[data-span]").forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
    look();
  });
});
new ResizeObserver(drawTime).observe(byId("time"));
poll();
