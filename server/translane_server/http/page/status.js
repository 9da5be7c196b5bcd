// What the server does now: read every two seconds while the page is visible.

import { ServerError, readStatus } from "./calls.js";
import { count, duration, rate, setField, time } from "./fields.js";
import { ModelCard } from "./model-card.js";
import { rates, total } from "./rates.js";

const INTERVAL = 2000; // milliseconds
const TIMEOUT = 10000;

export class Status {
  #offer;
  #askForKey;
  #cards = new Map();
  #last = null;
  #timer = 0;
  #runs = false;
  #reads = false;

  // `offer` takes each reading, and `askForKey` the refusal of a call without a key.
  constructor(offer, askForKey) {
    this.#offer = offer;
    this.#askForKey = askForKey;
    document.addEventListener("visibilitychange", () => this.#read());
  }

  start() {
    this.#runs = true;
    this.#read();
  }

  stop() {
    this.#runs = false;
    this.#tell("locked", "needs a key");
  }

  async #read() {
    clearTimeout(this.#timer);
    if (!this.#runs || this.#reads || document.hidden) return;
    this.#reads = true;
    try {
      this.#show(await readStatus(AbortSignal.timeout(TIMEOUT)));
      this.#tell("live", "live");
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (error.needsKey) this.#askForKey(error);
      else this.#tell("lost", error.reason ? error.toString() : "no answer, trying again");
    } finally {
      this.#reads = false;
    }
    if (this.#runs) this.#timer = setTimeout(() => this.#read(), INTERVAL);
  }

  #show(status) {
    // The server's own time between two readings. A server that has started anew has no reading before.
    const seconds = this.#last ? status.uptimeSeconds - this.#last.uptimeSeconds : 0;
    const before = seconds > 0 ? this.#last : null;
    const whole = rates(before && total(loads(before)), total(loads(status)), seconds);
    const place = document.querySelector(".figures");
    setField(place, "requests", rate(whole.requests));
    setField(place, "tokens", rate(whole.tokens));
    setField(place, "time", time(whole.time));
    setField(place, "calls", `${count(status.openCalls)} of ${count(status.openCallsLimit)}`);
    setField(place, "refused", count(status.refused));
    const uptime = `${status.serverVersion} · up ${duration(status.uptimeSeconds)}`;
    document.querySelector("#version").textContent = uptime;
    this.#showModels(status.models, before, seconds);
    this.#offer(status);
    this.#last = status;
  }

  #showModels(models, before, seconds) {
    const cards = models.map((model) => {
      const card = this.#cards.get(model.name) ?? new ModelCard(model.name);
      const earlier = before?.models.find((each) => each.name === model.name);
      card.show(model, rates(earlier?.load, model.load, seconds));
      return card;
    });
    const known = [...this.#cards.values()];
    this.#cards = new Map(models.map((model, number) => [model.name, cards[number]]));
    if (cards.length !== known.length || cards.some((card, number) => card !== known[number])) {
      document.querySelector("#models").replaceChildren(...cards.map((card) => card.element));
    }
  }

  #tell(state, text) {
    const place = document.querySelector("#connection");
    place.dataset.state = state;
    if (place.textContent !== text) place.textContent = text; // a screen reader reads each change
  }
}

function loads(status) {
  return status.models.map((model) => model.load);
}
