"use strict";
// The matrix: models by languages or other data of a benchmark, or by the domains of a task.

{
  const { el, byId, known } = board;
  const ROWS = 50;
  const SCORES = { score: board.percent, start_to_end: board.points };
  /** Return the title of a score at a length. */
  const titleOf = (name, length) => board.title(name === "score" ? "ndcg_at_10" : name);
  let sortedBy = null;
  let all = false;

  function choice(label, id, values, value) {
    const select = el(
      "select",
      { id, onchange: ({ target }) => board.change({ [id.replace("matrix-", "")]: target.value }) },
      ...values.map(([name, text]) => el("option", { value: name }, text)),
    );
    select.value = value;
    return el("label", { class: "field" }, el("span", {}, label), select);
  }

  const readable = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");

  /** Return the columns to show: all, or the chosen domain. */
  function columnsOf(matrix, state) {
    const places = matrix.columns.map((_, at) => at);
    return matrix.columns.includes(state.domain) ? [matrix.columns.indexOf(state.domain)] : places;
  }

  /** Points of start to end that have the full color. */
  const FULL = 0.5;

  /** The score whose cell has the full color. */
  const DEEP = 0.85;

  /** Color a cell by a score, or by a difference, on a scale that is the same on every board. */
  board.shade = (cell, value, signed = false) => {
    if (!known(value)) return;
    const share = Math.min(Math.max(signed ? Math.abs(value) / FULL : value / DEEP, 0), 1);
    cell.style.setProperty("--heat-share", `${Math.round(50 * share)}%`);
    if (signed) cell.classList.add(value < 0 ? "toward-end" : "toward-start");
  };

  function head(names, redraw) {
    const sorted = (at) => (sortedBy?.at === at ? (sortedBy.down ? "descending" : "ascending") : null);
    const cell = (at, title, tokens) => {
      const sort = () => {
        sortedBy = { at, down: sortedBy?.at === at ? !sortedBy.down : true };
        redraw();
      };
      return el("th", { scope: "col", "aria-sort": sorted(at) }, el("button", { type: "button", onclick: sort }, el("span", {}, title), tokens ? el("span", { class: "tokens" }, tokens) : null));
    };
    return el("tr", {}, el("th", { scope: "col" }, "Model"), ...names.map((name) => cell(...name)));
  }

  function line(row, cells, places, name) {
    const format = SCORES[name];
    const scores = places.map((at) => {
      const value = cells[at];
      if (!known(value)) return el("td", { class: "missing", title: "no result" }, el("span", { class: "unseen" }, "no result"));
      const cell = el("td", { class: "heat" }, format(value));
      board.shade(cell, value, name === "start_to_end");
      return cell;
    });
    return el("tr", {}, el("th", { scope: "row" }, board.name(row.label)), ...scores);
  }

  function draw(panel, matrix, { state, length, rows, what }) {
    const name = SCORES[state.score] && matrix.lengths[length]?.[state.score]?.flat().some(known) !== false ? state.score : "score";
    const cells = (matrix.lengths[length] ?? Object.values(matrix.lengths)[0])[name];
    const passing = new Map(rows.filter((row) => board.passes(row, state)).map((row) => [row.model, row]));
    const lines = matrix.models.map((model, at) => [passing.get(model), cells[at]]).filter(([row]) => row);
    const places = columnsOf(matrix, state).filter((at, _, every) => every.length === 1 || lines.some(([, values]) => known(values[at])));
    const key = ([row, values]) => (sortedBy && places.includes(sortedBy.at) ? values[sortedBy.at] : row.score) ?? null;
    const factor = sortedBy && !sortedBy.down ? 1 : -1;
    const order = (one, other) => (known(key(one)) ? (known(key(other)) ? (key(one) - key(other)) * factor : -1) : 1);
    lines.sort(order);
    const redraw = () => draw(panel, matrix, { state, length, rows, what });
    const shown = all ? lines : lines.slice(0, ROWS);
    const more = () => {
      all = true;
      redraw();
    };
    board.sayCount(lines.length, matrix.models.length);
    panel.querySelector(".matrix").replaceChildren(
      board.wide(
        el(
          "table",
          {},
          el("caption", { class: "unseen" }, `${titleOf(name, length)} of models by ${what}`),
          el("thead", {}, head(places.map((at) => [at, readable(matrix.columns[at]), what === "length" ? board.tokensOf(matrix.columns[at]) : ""]), redraw)),
          el("tbody", {}, ...shown.map(([row, values]) => line(row, values, places, name))),
        ),
      ),
      shown.length < lines.length ? el("button", { type: "button", class: "quiet", onclick: more }, `Show all ${lines.length}`) : "",
    );
  }

  /** Show models by languages for an average, by domains for a task. */
  board.showMatrix = async (index, state, { group, choice: view, length }, rows) => {
    const panel = byId("panel-matrix");
    const matrix = view ? await board.data(`matrix/${view.file}`) : null;
    if (board.state() !== state) return;
    if (!matrix) {
      board.say("");
      panel.replaceChildren(el("p", { class: "empty" }, "No results yet."));
      return;
    }
    const what = matrix.by;
    if (Object.keys(matrix.lengths).length < 2) byId("length").hidden = true;
    const domains = matrix.columns.map((name) => [name, readable(name)]);
    const filled = Object.keys(SCORES).filter((name) => Object.values(matrix.lengths).some((cells) => cells[name].flat().some(known)));
    const hatched = Object.values(matrix.lengths).some((cells) => cells.score.flat().some((value) => !known(value)));
    panel.replaceChildren(
      el(
        "div",
        { class: "row choices" },
        choice("Score", "matrix-score", filled.map((name) => [name, titleOf(name, length)]), filled.includes(state.score) ? state.score : "score"),
        what === "length" || matrix.columns.length === 1 ? null : choice(readable(what), "matrix-domain", [["", `All ${what}s`], ...domains], matrix.columns.includes(state.domain) ? state.domain : ""),
        el("p", { class: "faint" }, what === "domain" ? "All lengths together. " : "", state.score === "start_to_end" ? "Color: up to 50 points" : "Color: from 0", el("span", { class: "scale" }), state.score === "start_to_end" ? "." : "to 85.", hatched ? " Hatched: no result." : "", matrix.columns.length === 1 ? ` Only one ${what} has results.` : ""),
      ),
      el("div", { class: "matrix" }),
    );
    draw(panel, matrix, { state, length, rows, what });
  };
}
