"use strict";
// The controls: benchmark, data, length, filters, tabs, theme.

{
  const { el, byId } = board;
  const { TABS } = board;
  const THEMES = new Map([
    ["", "Auto"],
    ["light", "Light"],
    ["dark", "Dark"],
  ]);

  /** Build the controls that depend on the data. */
  board.makeControls = (index) => {
    const groups = board.groups(index);
    offer("benchmark", groups.map((group) => [group.name, group.name, group.description]));
    byId("benchmark").hidden = groups.length < 2;
    options("kind", "Any kind", [...new Set(index.models.kind)].sort());
    options("size", "Any size", board.RANGES.size.names);
    options("window", "Any window", board.RANGES.window.names);
    options("dimensions", "Any dimensions", board.RANGES.dimensions.names);
    options("license", "Any license", [...new Set(index.models.license.map((license) => license ?? "unknown"))].sort());
    options("weights", "Open or closed", [
      ["true", "Open weights"],
      ["false", "Closed weights"],
      ["null", "Unknown"],
    ]);
    byId("sort").replaceChildren(...SORTS.map(([value, text]) => el("option", { value }, text)));
    options("source", "All results", [
      ["submitted", "Evaluated with posir"],
      ["published", "Published in the papers"],
    ]);
    options("bias", "Any state", Object.entries(index.states));
    listen();
  };

  function pill(name, value, text, title = null) {
    const tokens = name === "length" && board.tokensOf(value);
    return el("label", { title }, el("input", { type: "radio", name, value }), el("span", {}, text, tokens ? el("small", {}, tokens) : null));
  }

  /** Show choices as pills, or as a menu on a narrow page. */
  function offer(name, choices) {
    const legend = byId(name).firstElementChild;
    const items = choices.map(([value, text, title]) => el("option", { value }, name === "length" ? (title ?? "All lengths") : text));
    byId(name).replaceChildren(legend, ...choices.map((choice) => pill(name, ...choice)), el("select", { name, "aria-label": legend.textContent }, ...items));
  }

  /** Mark the current choice. */
  function syncChoice(name, value) {
    for (const input of byId(name).querySelectorAll("input")) input.checked = input.value === value;
    const menu = byId(name).querySelector("select");
    if (menu) menu.value = value ?? "";
  }

  const SORTS = [
    ["-score", "nDCG@10"],
    ["-change", "Q1 to Q4, least loss first"],
    ["effect", "Position effect, nearest to 0 first"],
    ["difference", "Start minus end, nearest to 0 first"],
    ["psi", "PSI as published, lowest first"],
    ["label", "Name"],
    ["parameters", "Size, smallest first"],
    ["-window", "Window, largest first"],
    ["kind", "Kind"],
  ];

  function options(id, any, values) {
    const items = values.map((value) =>
      Array.isArray(value) ? el("option", { value: value[0] }, value[1]) : el("option", { value }, value),
    );
    byId(id).replaceChildren(el("option", { value: "" }, any), ...items);
  }

  function listen() {
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    byId("controls").addEventListener("change", ({ target }) => {
      if (target.name === "benchmark") board.change({ benchmark: target.value, data: "", task: "", page: "1" }, { step: true });
      else if (target.name === "length") board.change({ length: target.value, page: "1" }, { step: true });
      else if (target.id === "data") board.change({ data: target.value, task: "", page: "1" }, { step: true });
      else if (target.id !== "search") board.change({ [target.id]: target.value, page: "1" });
    });
    byId("search").addEventListener("input", ({ target }) => board.change({ search: target.value, page: "1" }));
    byId("reset").addEventListener("click", board.resetFilters);
    byId("more").addEventListener("click", () => {
      openFilters(!byId("filters").classList.contains("open"));
    });
    byId("theme").addEventListener("click", () => {
      const names = [...THEMES.keys()];
      board.change({ theme: names[(names.indexOf(board.state().theme) + 1) % names.length] });
    });
    for (const tab of TABS) byId(`tab-${tab}`).addEventListener("click", () => board.change({ tab }, { step: true }));
    byId("tabs").addEventListener("keydown", moveTab);
    byId("skip").addEventListener("click", (event) => jump(event, "results"));
    for (const link of document.querySelectorAll("[data-goto]"))
      link.addEventListener("click", (event) => jump(event, link.dataset.goto));
  }

  function openFilters(open) {
    byId("filters").classList.toggle("open", open);
    byId("more").setAttribute("aria-expanded", open);
  }

  // The fragment of the address is the state, so jumps within the page need scripts.
  function jump(event, id) {
    event.preventDefault();
    if (byId(id).matches("details")) byId(id).open = true;
    (byId(id).querySelector("summary") ?? byId(id)).focus();
    byId(id).scrollIntoView();
  }

  function moveTab(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const tab = TABS[(TABS.indexOf(board.state().tab) + step + TABS.length) % TABS.length];
    board.change({ tab });
    byId(`tab-${tab}`).focus();
  }

  /** Update the controls from a state. */
  board.syncControls = (index, state, group, chosen) => {
    syncChoice("benchmark", group?.name);
    syncData(group, chosen);
    if (byId("search").value !== state.search) byId("search").value = state.search;
    for (const id of board.FILTERS) byId(id).value = state[id];
    byId("sort").value = state.sort;
    byId("reset").disabled = !board.isFiltered(state);
    if (board.FILTERS.some((id) => state[id])) openFilters(true);
    document.documentElement.dataset.theme = state.theme;
    byId("theme").lastChild.data = ` ◐ ${THEMES.get(state.theme) ?? THEMES.get("")}`;
    for (const tab of TABS) {
      const active = tab === state.tab;
      byId(`tab-${tab}`).setAttribute("aria-selected", active);
      byId(`tab-${tab}`).tabIndex = active ? 0 : -1;
      byId(`panel-${tab}`).hidden = !active;
    }
    for (const id of ["csv", "json", "narrow"]) byId(id).classList.toggle("absent", state.tab === "models");
    const selected = board.models(state).length;
    byId("tab-models").textContent = selected ? `Models (${selected})` : "Models";
  };

  function syncData(group, chosen) {
    byId("choose").textContent = group?.dimension ?? "Data";
    const select = byId("data");
    if (select.dataset.group !== group?.name) {
      const views = group?.views ?? [];
      const choices = [
        ["", views.filter((view) => view.average)],
        ["In the average", views.filter((view) => view.averaged)],
        [
          views.some((view) => view.average) ? "Not in the average" : "",
          views.filter((view) => !view.average && !view.averaged),
        ],
      ];
      select.replaceChildren(...choices.filter(([, list]) => list.length).flatMap(grouped));
      select.dataset.group = group?.name ?? "";
    }
    select.value = chosen?.name ?? "";
    select.parentElement.hidden = select.options.length < 2;
  }

  function grouped([label, views]) {
    const items = views.map((view) => el("option", { value: view.name }, `${view.label} · ${view.models} ${view.models === 1 ? "model" : "models"}`));
    return label ? [el("optgroup", { label }, ...items)] : items;
  }

  const lengthTitle = (name) => (board.describeTokens(name) ? `${name}: ${board.describeTokens(name)}` : null);

  /** Show the lengths of a view. */
  board.syncLengths = (index, lengths, length) => {
    const fieldset = byId("length");
    if (fieldset.dataset.lengths !== lengths.join()) {
      fieldset.dataset.lengths = lengths.join();
      offer("length", lengths.map((name) => [name, name === "all" ? "All" : name, lengthTitle(name)]));
    }
    fieldset.hidden = lengths.length < 2;
    syncChoice("length", length);
  };

  board.showStatus = (text) => {
    byId("status").textContent = text;
  };

  /** Report the parts of a link that do not exist on this board. */
  board.showProblems = (problems) => {
    byId("notice").hidden = !problems.length;
    byId("notice").textContent = problems.join(" ");
  };

  /** Show the revisions of the data and the newest result. */
  board.showProvenance = (index, { models, revisions, newest }) => {
    const counts = Object.entries(revisions).map(([name, number]) => `${name} (${number} ${number === 1 ? "result" : "results"})`);
    const data = counts.length ? `Data revisions: ${counts.join(", ")}. ` : "";
    const latest = newest && `Newest result: ${index.models.label[newest.model]} on ${newest.task}, ${newest.date} according to its file.`;
    const published = models.some((model) => index.models.published[model]) ? "Published results: tables of the papers named below, curves from their authors’ figures." : "";
    byId("provenance").textContent = [data.trim(), latest, published].filter(Boolean).join(" ");
  };

  board.showCount = (passing, all) => {
    const models = (number) => `${board.count(number)} ${number === 1 ? "model" : "models"}`;
    board.showStatus(passing === all ? models(all) : `${board.count(passing)} of ${models(all)}`);
  };
}
