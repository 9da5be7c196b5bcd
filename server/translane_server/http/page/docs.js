// The calls and messages of openapi.json.

const REFERENCE = "#/components/schemas/";

const api = await (await fetch("openapi.json")).json();
document.querySelector("#title").textContent = `${api.info.title} ${api.info.version}`;
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, call] of Object.entries(methods)) document.querySelector("#calls").append(describeCall(path, method, call));
}
for (const [name, schema] of Object.entries(api.components.schemas)) {
  document.querySelector("#schemas").append(describeMessage(name, schema));
}
open();
window.addEventListener("hashchange", open);

// An element with children, of which texts stay texts.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== undefined));
  return element;
}

function describeCall(path, method, call) {
  return make("section", { class: "panel" },
    make("h2", {}, make("code", {}, `${method.toUpperCase()} ${path}`)),
    ...paragraphs(call.description ?? call.summary),
    ...contents("takes", call.requestBody),
    ...contents("returns", call.responses["200"]),
    fields((call.parameters ?? []).map((each) => [`${each.name} (${each.in})`, { description: each.description, ...each.schema }])));
}

function describeMessage(name, schema) {
  return make("details", { class: "panel", id: name },
    make("summary", {}, make("code", {}, name)),
    ...paragraphs(schema.description),
    fields(Object.entries(schema.properties ?? {})));
}

// The types of a body. Each kind of message is said once.
function contents(verb, body) {
  const types = Object.entries(body?.content ?? {});
  return types.map(([type, { schema }]) => make("p", { class: "quiet" }, `${verb} `, make("code", {}, type), " ", ...typeOf(schema)));
}

function fields(list) {
  if (!list.length) return undefined;
  const rows = list.map(([name, schema]) => make("tr", {},
    make("th", { scope: "row" }, make("code", {}, name)),
    make("td", {}, ...typeOf(schema)),
    make("td", {}, schema.description ?? "")));
  return make("div", { class: "scrolls" }, make("table", {}, make("tbody", {}, ...rows)));
}

function typeOf(schema = {}) {
  if (schema.$ref?.startsWith(REFERENCE)) {
    const name = schema.$ref.slice(REFERENCE.length);
    return [make("a", { href: `#${name}` }, name)];
  }
  if (schema.type === "array") return ["list of ", ...typeOf(schema.items)];
  if (schema.additionalProperties) return ["map to ", ...typeOf(schema.additionalProperties)];
  return [[schema.type].flat().filter(Boolean).join(" or ")];
}

function paragraphs(text = "") {
  return text.split("\n\n").filter(Boolean).map((each) => make("p", {}, each));
}

// Opens the message that the address names.
function open() {
  const message = location.hash && document.getElementById(location.hash.slice(1));
  if (!message) return;
  message.open = true;
  message.scrollIntoView();
}
