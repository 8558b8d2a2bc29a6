"use strict";
// One model, or up to four compared.

{
  const { el, byId, section } = board;
  let drawn = "";

  /** Return the selected models that exist, as objects, each with its index among them. */
  function selectedOf(index, state) {
    const ids = board
      .models(state)
      .filter((id) => index.models.id.includes(id))
      .slice(0, board.MAX_COMPARED);
    return ids.map((id, place) => {
      const at = index.models.id.indexOf(id);
      const model = Object.fromEntries(Object.entries(index.models).map(([name, values]) => [name, values[at]]));
      return { ...model, place, label: model.published ? `${model.label} (published)` : model.label };
    });
  }

  function chip(model) {
    const remove = el(
      "button",
      { type: "button", class: "quiet", "aria-label": `Remove ${model.label}`, onclick: () => board.toggle(model.id) },
      "×",
    );
    return el("li", { class: "chip" }, board.swatch(model), board.name(model.label), remove);
  }

  /** Show which models are selected, on every tab. */
  board.showTray = (index, state) => {
    const models = selectedOf(index, state);
    const tray = byId("tray");
    tray.hidden = !models.length || state.tab === "models";
    if (tray.dataset.models === state.models) return;
    tray.dataset.models = state.models;
    const open = el(
      "button",
      { type: "button", onclick: () => board.change({ tab: "models" }, { step: true }) },
      models.length > 1 ? "Compare" : "Open",
    );
    tray.replaceChildren(el("ul", {}, ...models.map(chip)), open);
  };

  /** Show the selected models. */
  board.showModels = async (index, state, { group, choice, length }) => {
    const models = selectedOf(index, state);
    const key = JSON.stringify([state.models, state.task, state.theme, choice?.name, length]);
    board.say(models.length ? "" : "No model is selected.");
    if (key === drawn) return;
    const files = await Promise.all(models.map((model) => board.data(`models/${model.id}`)));
    if (board.state() !== state) return;
    drawn = key;
    const shown = models.map((model, at) => ({
      ...model,
      tasks: new Map(Object.entries(files[at].tasks)),
      averages: new Map(Object.entries(files[at].averages)),
    }));
    const figures = [];
    byId("panel-models").replaceChildren(
      adder(index, shown),
      ...(shown.length ? sections(shown, state, group, choice, length, figures) : []),
    );
    await Promise.all(figures.map((figure) => board.draw(figure.place, figure)));
  };

  function adder(index, models) {
    const chips = el("ul", { class: "chips" }, ...models.map(chip));
    if (models.length >= board.MAX_COMPARED) return el("div", { class: "adder" }, chips);
    const options = index.models.label.map((label, at) =>
      el("option", { value: index.models.published[at] ? `${label} (published)` : label }),
    );
    const input = el("input", {
      list: "all-models",
      "aria-label": "Add a model",
      placeholder: models.length ? "Add a model to compare" : "Name of a model",
    });
    const values = options.map((option) => option.value);
    input.addEventListener("input", () => {
      const at = values.indexOf(input.value);
      if (at >= 0 && !models.some((model) => model.id === index.models.id[at])) board.toggle(index.models.id[at]);
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

  function sections(models, state, group, choice, length, figures) {
    const tasks = group.views.filter((view) => !view.average && models.some((model) => model.tasks.has(view.name)));
    const task = tasks.find((view) => view.name === (state.task || choice.name)) ?? tasks[0];
    return [
      board.facts(models),
      board.byLength(models, choice),
      task ? board.positions(models, tasks, task, figures) : el("p", { class: "empty" }, `No result on ${group.name}.`),
      task && board.domains(models, task, figures),
      tasks.length > 1 && board.heatMaps(models, tasks, group, figures),
      tasks.length > 1 && board.byChoice(models, tasks, group, length),
      task && notes(models, task),
    ].filter(Boolean);
  }

  function notes(models, task) {
    const texts = models.flatMap((model) => model.tasks.get(task.name)?.notes ?? []);
    const revisions = models
      .filter((model) => model.tasks.get(task.name)?.data_revision)
      .map((model) => `${model.label}: data revision ${model.tasks.get(task.name).data_revision}`);
    return section(
      "Notes",
      el("ul", { class: "notes" }, ...[...new Set([...texts, ...revisions])].map((text) => el("li", {}, el("bdi", {}, text)))),
    );
  }
}
