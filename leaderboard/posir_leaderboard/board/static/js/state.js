"use strict";
// The state of the page, stored in the fragment of its address.

{
  const DEFAULTS = {
    benchmark: "",
    data: "",
    length: "",
    search: "",
    kind: "",
    size: "",
    weights: "",
    source: "",
    bias: "",
    window: "",
    license: "",
    dimensions: "",
    unranked: "",
    sort: "-score",
    page: "1",
    tab: "table",
    models: "",
    task: "",
    theme: "",
  };
  board.TABS = ["table", "chart", "models"];
  const FILTERS = ["search", "kind", "size", "window", "dimensions", "weights", "license", "source", "bias"];
  const listeners = [];
  let current = { ...DEFAULTS };

  /** Return the current state; all values are strings. */
  board.state = () => current;

  board.defaults = () => ({ ...DEFAULTS });

  /** Names of the filters with a list of choices. */
  board.FILTERS = FILTERS.filter((name) => name !== "search");

  /** Call a function with every new state and the previous one. */
  board.onState = (listener) => listeners.push(listener);

  /** Return the fragment of a state, without default values. */
  board.toFragment = (state) => {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) parameters.set(name, value);
    return `#${parameters}`;
  };

  /** Change the state; with `step`, add an entry to the browser's history. */
  board.change = (patch, { step = false } = {}) => {
    const next = { ...current, ...patch };
    if (board.toFragment(next) === board.toFragment(current)) return;
    writeAddress(next, step);
    setState(next);
  };

  /** Record a change that the page already shows, such as another page of the table. */
  board.recordChange = (patch) => {
    const next = { ...current, ...patch };
    if (board.toFragment(next) !== board.toFragment(current)) {
      current = next;
      writeAddress(next);
    }
    return current;
  };

  board.resetFilters = () => board.change({ ...Object.fromEntries(FILTERS.map((name) => [name, ""])), page: "1" });

  board.isFiltered = (state) => FILTERS.some((name) => state[name]);

  board.models = (state) => state.models.split(",").filter(Boolean);

  function setState(next) {
    const previous = current;
    current = next;
    for (const listener of listeners) listener(next, previous);
  }

  function readAddress() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const state = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, parameters.get(name) ?? value]));
    return board.TABS.includes(state.tab) ? state : { ...state, tab: DEFAULTS.tab };
  }

  function writeAddress(state, step = false) {
    history[step ? "pushState" : "replaceState"](null, "", board.toFragment(state));
    // A Space shows the page in a frame. This message updates the address of the outer page.
    if (window.parent !== window) window.parent.postMessage({ hash: board.toFragment(state).slice(1) }, "https://huggingface.co");
  }

  /** Read the state from the address, now and whenever it changes. */
  board.followAddress = () => {
    current = readAddress();
    window.addEventListener("popstate", () => setState(readAddress()));
  };
}
