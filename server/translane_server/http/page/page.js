// The page: a translator, and what the server does now.

import { key } from "./calls.js";
import { Status } from "./status.js";
import { Translator } from "./translator.js";

const VIEWS = ["translate", "server"];

const form = document.querySelector("#key-form");
const forget = document.querySelector("#forget-key");

const translator = new Translator(askForKey);
const status = new Status((report) => translator.offer(report), askForKey);

// The server has refused a call for its key.
function askForKey(error) {
  key.forget();
  status.stop();
  form.hidden = false;
  forget.hidden = true;
  document.querySelector("#key-problem").textContent = error.toString();
  form.elements.key.focus();
}

function show() {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : VIEWS[0];
  for (const each of VIEWS) {
    document.querySelector(`#${each}`).hidden = each !== view;
    const link = document.querySelector(`nav a[href="#${each}"]`);
    if (each === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  key.use(form.elements.key.value.trim());
  form.reset();
  form.hidden = true;
  forget.hidden = false;
  status.start();
});

forget.addEventListener("click", () => {
  key.forget();
  location.reload();
});

window.addEventListener("hashchange", show);
forget.hidden = !key.isKnown;
show();
status.start();
