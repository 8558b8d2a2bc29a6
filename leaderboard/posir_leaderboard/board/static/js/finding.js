"use strict";
// The heading: what the rows that pass the filters show; and the legend, of what the rows have.

{
  const { el, byId, known } = board;
  const short = (row) => board.name(row.label.split("/").at(-1) || row.label);
  /** Difference of start and end up to which the heading says it. */
  const EVEN = 0.05;
  const points = (value) => Math.abs(value * 100).toFixed(1);
  const plural = (number, word) => `${board.count(number)} ${word}${number === 1 ? "" : "s"}`;

  const tokens = (length) => (board.lengths[length] ?? length).split(": ").at(-1);

  /** Return the rows that are not worse than the best, then the others; by descending score. */
  board.standing = (rows) => {
    const sorted = rows.filter((row) => known(row.score)).sort((one, other) => other.score - one.score);
    const [best, ...others] = sorted;
    return { best: best ?? null, ties: others.filter((row) => board.tied(best, row)), behind: others.filter((row) => !board.tied(best, row)) };
  };

  /** Return the name of the first row, and of a second one or how many others there are. */
  board.namesOf = ([first, ...others]) => [short(first), ...(others.length ? [" and ", others.length > 1 ? `${others.length} others` : short(others[0])] : [])];

  /** Return the finding of the rows that pass filters, and below it its lead, as text and elements. */
  function finding(rows, state, where) {
    const passing = rows.filter((row) => board.isComparable(row) && board.passes(row, state));
    const { best, ties, behind } = board.standing(passing);
    if (!best) return [["No model passes these filters."], []];
    const [open, next] = [ties[0], behind[0]];
    const sure = (next?.changes?.[best.at] ?? "-") !== "-";
    const said = open ? `cannot be told apart ${where}: nDCG@10 ${board.percent(ties.at(-1).score)} to ` : `${sure ? "finds evidence best" : "scores highest"} ${where}: nDCG@10 `;
    return [
      [`Of ${plural(passing.length, "model")} with these filters, `, ...board.namesOf([best, ...ties]), ` ${said}${board.percent(best.score)}`],
      next ? [short(next), ` is ${points(board.behind(next, best))} behind.`] : [],
    ];
  }

  /** Return the largest start to end in either direction of the rows that pass filters, as text and elements. */
  function largest(rows, state) {
    // Of a model that does not read to the end, the row says why.
    const passing = rows.filter((row) => board.isComparable(row) && board.passes(row, state) && !(row.not_read >= 0.0005));
    const found = board.startToEnd(passing.map((row) => ({ ...row, effect_low: row.start_to_end_low, effect_high: row.start_to_end_high })));
    return found.length ? [...found.map((part, at) => (at % 2 ? part : board.name(part))), ". "] : [];
  }

  /** Return how the best row finds start and end, as text and elements: of published ones by the difference, else by the state. */
  function endsOf(rows, most) {
    const { best } = board.standing(rows.filter(board.isComparable));
    if (!best?.effect || most.some((part) => part.textContent === short(best).textContent)) return [];
    if (!board.isDecided(best) && !board.known(best.start_to_end_low) && Math.abs(best.effect) <= EVEN) return [];
    if (board.isDecided(best)) return best.states.includes("cannot_be_said") ? [] : [`Within what it reads: ${best.state_label}.`];
    const ends = board.unbroken(board.intervalText(best, "start_to_end"));
    const interval = ends && ` (start minus end: ${ends})`;
    const [better, worse] = best.effect > 0 ? ["start", "end"] : ["end", "start"];
    return [short(best), ` finds the ${better} ${points(best.effect)} points better than the ${worse}${interval}.`];
  }

  /** Return sentences that a phone leaves out, where its rows say it. */
  const aside = (...parts) => el("span", { class: "aside" }, ...parts);

  /** Say in the heading what the rows show, below it by how much, and what is measured. */
  board.showFinding = (rows, state, shown, { where, headline, lead }) => {
    if (!shown.choice) return byId("finding").replaceChildren("No results yet.");
    const named = (parts) => parts.map((part, at) => (at % 2 ? board.name(part) : part));
    const most = largest(rows, state);
    const [found, ahead] = board.isFiltered(state) ? finding(rows, state, where) : [named(headline), [most.length ? aside(...named(lead)) : el("span", {}, ...named(lead)), aside(...endsOf(rows, most))]];
    const published = rows.length && rows.every((row) => row.published);
    byId("finding").replaceChildren(...found);
    byId("lead").replaceChildren(...most, ...ahead);
    byId("search").placeholder = (rows.at(-1)?.label ?? "").split("/").at(-1);
    byId("bias").parentElement.hidden = !state.bias && !rows.some(board.isDecided);
    const data = where.startsWith("on ") ? "" : shown.choice.average ? `${shown.group.name}, ${shown.choice.label.toLowerCase()}` : shown.choice.data;
    const what = shown.length === "all" ? "" : ` in documents of ${tokens(shown.length)}`;
    const source = published ? `; published in the papers${rows.some((row) => known(row.score_low)) ? "" : ", without intervals"}` : "";
    const intervals = !published && rows.some((row) => known(row.score_low)) ? "; in brackets 95 % intervals" : "";
    const single = published && shown.choice.average && !rows.some((row) => known(row.effect)) ? "; start to end is known of single ones only" : "";
    const sample = shown.group.name === "PosIR-Mini" ? " A small sample for a first run." : "";
    const pictures = rows.some((row) => row.strip) ? el("span", { class: "narrow" }, " Pictures: the same from the start of documents to their end.") : "";
    board.showElsewhere(rows, shown);
    return byId("measured").replaceChildren("nDCG@10 (100: the right document always first)", `${[what, data && `; ${data}`, intervals, source, single].join("")}.${sample}`, pictures);
  };

  /** Say below a table without published results where they are. */
  board.showElsewhere = (rows, { group, elsewhere }) => {
    const place = byId("elsewhere");
    place.hidden = !elsewhere || elsewhere === group || rows.some((row) => row.published);
    if (place.hidden) return;
    const most = Math.max(...elsewhere.views.map((view) => view.models));
    place.replaceChildren(`${plural(most, "published model")}, on other data: see `, el("a", { href: board.hash({ ...board.defaults(), benchmark: elsewhere.name }) }, elsewhere.name), ".");
  };

  /** Leave out of the legend what no row has. */
  board.showKey = (rows) => {
    const has = (name) => rows.some((row) => known(row[name]) && row[name] !== false);
    for (const entry of document.querySelectorAll("[data-has]")) entry.hidden = !has(entry.dataset.has);
  };
}
