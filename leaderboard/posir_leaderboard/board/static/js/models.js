"use strict";
// The tab with one model, or with up to four compared models.

{
  const { el, byId, section } = board;
  const OPENED_WITH = 3;
  let drawn = null;

  /** Return the existing models with these ids, each with its index among them and among all models. */
  function findModels(index, ids) {
    const existingIds = ids.filter((id) => index.models.id.includes(id)).slice(0, board.MAX_COMPARED);
    return existingIds.map((id, series) => {
      const i = index.models.id.indexOf(id);
      const model = Object.fromEntries(Object.entries(index.models).map(([name, values]) => [name, values[i]]));
      return { ...model, index: i, series, label: model.published ? `${model.label} (published)` : model.label };
    });
  }

  const findSelected = (index, state) => findModels(index, board.models(state));

  /** Choose the models that the tab shows at first: the best model, preferably with known positions, and those with the largest differences between start and end. */
  function chooseFirst(rows, state) {
    const ranked = rows.filter((row) => board.isComparable(row) && board.passes(row, state) && board.isKnown(row.score));
    const order = (a, b) => Boolean(b.strip) - Boolean(a.strip) || Boolean(a.published) - Boolean(b.published) || b.score - a.score;
    ranked.sort(order);
    const shift = (row) => row.effect ?? row.difference;
    const byShift = ranked.filter((row) => row.strip && shift(row)).sort((a, b) => Math.abs(shift(b)) - Math.abs(shift(a)));
    return [...new Set([ranked[0], ...byShift.slice(0, 1), ...byShift.filter((row) => shift(row) * shift(byShift[0]) < 0).slice(0, 1), ...ranked].filter(Boolean))].slice(0, OPENED_WITH).map((row) => row.id);
  }

  function chip(model, models) {
    const without = () => board.change({ models: models.filter((other) => other !== model).map((other) => other.id).join() });
    const remove = el("button", { type: "button", class: "quiet", "aria-label": `Remove ${model.label}`, onclick: without }, "×");
    return el("li", { class: "chip" }, board.swatch(model), board.name(model.label), remove);
  }

  /** Show the selected models on every tab. */
  board.showTray = (index, state) => {
    const models = findSelected(index, state);
    const tray = byId("tray");
    tray.hidden = !models.length || state.tab === "models";
    if (tray.dataset.models === state.models) return;
    tray.dataset.models = state.models;
    const open = el(
      "button",
      { type: "button", onclick: () => board.change({ tab: "models" }, { step: true }) },
      models.length > 1 ? "Compare" : "Open",
    );
    const clear = el("button", { type: "button", class: "quiet clear", "aria-label": "Remove all", onclick: () => board.change({ models: "" }) }, "×");
    tray.replaceChildren(el("ul", {}, ...models.map((model) => chip(model, models))), el("span", { class: "count" }, `${models.length} chosen`), open, clear);
  };

  /** Show the selected models. If only the length changes, redraw only the sections that depend on it. */
  board.showModels = async (index, state, { group, choice, length }, rows) => {
    const selected = findSelected(index, state);
    const models = selected.length ? selected : findModels(index, chooseFirst(rows, state));
    const key = JSON.stringify([models.map((model) => model.id), state.task, state.theme, choice?.name]);
    board.showStatus(selected.length || !models.length ? "" : "The best model, and the models with the largest difference between start and end. Add others here.");
    if (key === drawn?.key && length === drawn.length) return drawLater();
    const [paired, ...files] = await Promise.all([
      choice && models.length > 1 ? board.data(`differences/${choice.file}`) : null,
      ...models.map((model) => board.data(`models/${model.id}`)),
    ]);
    if (board.state() !== state) return;
    const shown = models.map((model, i) => ({
      ...model,
      tasks: new Map(Object.entries(files[i].tasks)),
      averages: new Map(Object.entries(files[i].averages)),
    }));
    const context = { state, group, choice, length, paired };
    if (key === drawn?.key) showLength(shown, context);
    else showAll(index, shown, context, key);
    if (drawn.first) await board.draw(drawn.first.container, drawn.first);
    drawLater();
  };

  function showAll(index, models, context, key) {
    const figures = [];
    const lengthSections = models.length ? byLengthSections(models, context, figures, drawn?.first?.container) : [];
    const [first] = figures.splice(0);
    const others = models.length ? sections(models, context, lengthSections, figures) : [];
    drawn = { key, length: context.length, lengthSections, first, waiting: figures };
    byId("panel-models").replaceChildren(adder(index, models), ...others);
  }

  function showLength(models, context) {
    const figures = [];
    const newSections = byLengthSections(models, context, figures, drawn.first?.container);
    drawn.lengthSections.forEach((section, i) => section?.replaceWith(newSections[i]));
    drawn = { ...drawn, length: context.length, lengthSections: newSections, first: figures[0] };
  }

  // Some browsers have no idle callbacks, and busy ones delay them.
  const idle = () => new Promise((resolve) => (window.requestIdleCallback ? requestIdleCallback(resolve, { timeout: 100 }) : setTimeout(resolve, 50)));
  let drawing = false;

  /** Draw the lower charts one by one while the browser is idle, so that the page stays responsive. */
  async function drawLater() {
    if (drawing) return;
    drawing = true;
    try {
      while (drawn.waiting.length) {
        await idle();
        if (board.state().tab !== "models") break;
        const figure = drawn.waiting.shift();
        if (figure) await board.draw(figure.container, figure);
      }
    } catch (error) {
      board.showStatus(`Error: ${error.message}.`);
    } finally {
      drawing = false;
    }
  }

  function adder(index, models) {
    const chips = el("ul", { class: "chips" }, ...models.map((model) => chip(model, models)));
    if (models.length >= board.MAX_COMPARED) return el("div", { class: "adder" }, chips);
    const options = index.models.label.map((label, i) =>
      el("option", { value: index.models.published[i] ? `${label} (published)` : label }),
    );
    const input = el("input", {
      list: "all-models",
      "aria-label": "Add a model",
      placeholder: models.length ? "Add a model to compare" : "Name of a model",
    });
    const values = options.map((option) => option.value);
    input.addEventListener("input", () => {
      const i = values.indexOf(input.value);
      const id = index.models.id[i];
      if (i >= 0 && !models.some((model) => model.id === id)) board.change({ models: [...models.map((model) => model.id), id].join() });
    });
    const empty = models.length
      ? null
      : el(
          "p",
          { class: "empty" },
          "Choose a model here, or up to four in the table, to see them by position, language and domain.",
        );
    return el("div", { class: "adder" }, chips, input, el("datalist", { id: "all-models" }, ...options), empty);
  }

  const tasksOf = (models, group) => group.views.filter((view) => !view.average && models.some((model) => model.tasks.has(view.name)));

  /** Return the sections that depend on the length: the curves, and the scores of all tasks. */
  function byLengthSections(models, { group, choice, length }, figures, container) {
    const tasks = tasksOf(models, group);
    return [board.positions(models, choice, length, figures, container), tasks.length > 1 ? board.byChoice(models, tasks, group, length) : null];
  }

  function sections(models, { state, group, choice, paired }, [positions, byChoice], figures) {
    const tasks = tasksOf(models, group);
    const task = tasks.find((view) => view.name === (choice.average ? state.task : choice.name)) ?? tasks[0];
    return [
      positions,
      board.byLength(models, choice),
      board.differences(models, paired, choice),
      task && board.domains(models, choice.average ? tasks : [], task, figures),
      tasks.length > 1 && board.heatMaps(models, tasks, group, figures),
      byChoice,
      board.facts(models),
      task && notes(models, task),
    ].filter(Boolean);
  }

  function notes(models, task) {
    const texts = models.flatMap((model) => model.tasks.get(task.name)?.notes ?? []);
    const revisions = models
      .filter((model) => model.tasks.get(task.name)?.data_revision)
      .map((model) => [model.label, model.tasks.get(task.name)])
      .map(([label, { data_revision: revision, date }]) => `${label}: data revision ${revision}${date ? `, result of ${date}` : ""}`);
    return section(
      "Notes",
      el("ul", { class: "notes" }, ...[...new Set([...texts, ...revisions])].map((text) => el("li", {}, el("bdi", {}, board.keepIntervals(text))))),
    );
  }
}
