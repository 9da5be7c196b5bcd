// The status page: what the server does now, and a box to try a translation.

import { key } from "./calls.js";
import { Status } from "./status.js";
import { TryBox } from "./try-box.js";

const form = document.querySelector("#key-form");
const forget = document.querySelector("#forget-key");

const tryBox = new TryBox(askForKey);
const status = new Status((models) => tryBox.offer(models), askForKey);

// The server has refused a call for its key.
function askForKey(error) {
  key.forget();
  status.stop();
  form.hidden = false;
  forget.hidden = true;
  document.querySelector("#key-problem").textContent = error.toString();
  form.elements.key.focus();
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

forget.hidden = !key.isKnown;
status.start();
