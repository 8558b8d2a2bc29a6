"use strict";
// The whole state of the page, which is what stands behind the # of its address.

{
  const DEFAULTS = {
    benchmark: "",
    data: "",
    length: "all",
    search: "",
    kind: "",
    size: "",
    weights: "",
    source: "",
    sort: "-ndcg_at_10",
    page: "1",
    tab: "table",
    models: "",
    task: "",
    theme: "",
  };
  board.TABS = ["table", "chart", "models"];
  const FILTERS = ["search", "kind", "size", "weights", "source"];
  const listeners = [];
  let current = { ...DEFAULTS };

  /** The present state; every value is text. */
  board.state = () => current;

  /** Call a function with every new state and the one before. */
  board.onState = (listener) => listeners.push(listener);

  /** Return the address's part behind the # of a state; what is as by default is left out. */
  board.hash = (state) => {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) if (value !== DEFAULTS[name]) parameters.set(name, value);
    return `#${parameters}`;
  };

  /** Change the state. A change that a visitor would want to go back from is a step in the browser's history. */
  board.change = (patch, { step = false } = {}) => {
    const next = { ...current, ...patch };
    if (board.hash(next) === board.hash(current)) return;
    address(next, step);
    move(next);
  };

  /** Note what has happened already, such as another page of the table, without drawing anything. */
  board.note = (patch) => {
    const next = { ...current, ...patch };
    if (board.hash(next) !== board.hash(current)) {
      current = next;
      address(next);
    }
    return current;
  };

  board.resetFilters = () => board.change({ ...Object.fromEntries(FILTERS.map((name) => [name, ""])), page: "1" });

  board.isFiltered = (state) => FILTERS.some((name) => state[name]);

  board.models = (state) => state.models.split(",").filter(Boolean);

  function move(next) {
    const before = current;
    current = next;
    for (const listener of listeners) listener(next, before);
  }

  function read() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const state = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, parameters.get(name) ?? value]));
    return board.TABS.includes(state.tab) ? state : { ...state, tab: DEFAULTS.tab };
  }

  function address(state, step = false) {
    history[step ? "pushState" : "replaceState"](null, "", board.hash(state));
    // A Space shows the page in a frame; the address around it follows this message.
    if (window.parent !== window) window.parent.postMessage({ hash: board.hash(state).slice(1) }, "https://huggingface.co");
  }

  /** Take the state from the address, and follow it. */
  board.followAddress = () => {
    current = read();
    window.addEventListener("popstate", () => move(read()));
  };
}
