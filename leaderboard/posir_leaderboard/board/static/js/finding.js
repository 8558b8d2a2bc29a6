"use strict";
// The heading: what the rows that pass the filters show; and the legend of the table, of what its rows have.

{
  const { el, byId, known } = board;
  const short = (row) => board.name(row.label.split("/").at(-1) || row.label);
  const points = (value) => Math.abs(value * 100).toFixed(1);
  const plural = (number, word) => `${board.count(number)} ${word}${number === 1 ? "" : "s"}`;

  /** Return the documents of a length in words. */
  function documents(length, lengths, choice) {
    const buckets = lengths.filter((name) => name !== "all");
    if (!buckets.length) return `on ${choice.average ? `the ${choice.label.toLowerCase()}` : choice.name}`;
    if (length === "all") return "in documents of all lengths";
    if (length === buckets.at(-1)) return "in long documents";
    return length === buckets[0] ? "in short documents" : `in documents of ${tokens(length)}`;
  }

  const tokens = (length) => (board.lengths[length] ?? length).split(": ").at(-1);

  /** Return the rows that are not worse than the best, then the others; by descending score. */
  board.standing = (rows) => {
    const sorted = rows.filter((row) => known(row.score)).sort((one, other) => other.score - one.score);
    const [best, ...others] = sorted;
    return { best: best ?? null, ties: others.filter((row) => board.tied(best, row)), behind: others.filter((row) => !board.tied(best, row)) };
  };

  /** Return the names of up to two rows, and how many more there are. */
  board.namesOf = (rows) => {
    const named = rows.slice(0, rows.length === 3 ? 3 : 2).map(short);
    const rest = rows.length - named.length;
    const parts = rest ? [...named, `${rest} more`] : named;
    return parts.flatMap((part, at) => (at === 0 ? [part] : [at === parts.length - 1 ? " and " : ", ", part]));
  };

  /** Return the finding as text and elements. */
  function finding(rows, state, { choice, length }, lengths) {
    const passing = rows.filter((row) => board.isComparable(row) && board.passes(row, state));
    const { best, ties, behind } = board.standing(passing);
    if (!best) return [!rows.length ? "No results yet." : board.isFiltered(state) ? "No model passes these filters." : "No result here is ranked: all are partial, or on other data."];
    const where = documents(length, lengths, choice);
    const score = board.percent(best.score);
    const bias = board.isDecided(best) ? [" Bias within what ", short(best), ` reads: ${best.state_label}.`] : [];
    if (!ties.length && !behind.length) return [short(best), `: nDCG@10 ${score} ${where}.`, ...bias];
    const among = board.isFiltered(state) ? `Of ${plural(passing.length, "model")} with these filters, ` : "";
    const lead = [among, short(best), ` finds most ${where} (${score}).`];
    const equivalent = (row) => row.changes?.[best.at] === "e";
    const [same, open] = [ties.filter(equivalent), ties.filter((row) => !equivalent(row))];
    const tie = [
      ...(same.length ? [" ", ...board.namesOf(same), same.length === 1 ? " is " : " are ", `${board.changeOf(best, same[0])}.`] : []),
      ...(open.length ? [" Whether it is better than ", ...board.namesOf(open), ` (${points(open[0].score - best.score)} behind) cannot be said.`] : []),
    ];
    const unranked = ties.length && !best.rank ? [" ", ...board.namesOf(ties), ties.length === 1 ? " scores the same." : " score the same."] : tie;
    const [next, last] = [behind[0], behind.at(-1)];
    const gap = next ? [" ", short(next), ` is ${points(next.score - best.score)} behind`, ...(last === next ? [] : [", ", short(last), ` ${points(last.score - best.score)}`]), "."] : [];
    return [...lead, ...unranked, ...gap, ...bias];
  }

  /** Say in the heading what the rows show, and below it what is measured and which intervals are unknown. */
  board.showFinding = (rows, state, shown, lengths) => {
    if (!shown.choice) return byId("finding").replaceChildren("No results yet.");
    byId("finding").replaceChildren(...finding(rows, state, shown, lengths));
    const data = shown.choice.average ? `${shown.group.name}, ${shown.choice.label.toLowerCase()}` : shown.choice.name;
    const what = shown.length === "all" ? "" : ` in documents of ${tokens(shown.length)}`;
    const without = rows.filter((row) => known(row.score) && !known(row.score_low));
    const why = without.some((row) => row.published) ? ` ${without.length === rows.length ? "All are published results, which have" : "Published results have"} no intervals here: the papers do not give the numbers of queries${shown.length === "all" ? "" : " by length"}.` : "";
    return byId("measured").replaceChildren(`nDCG@10${what}; ${data}.${why}`);
  };

  /** Return the legend of the table: a term and its meaning for each of what its rows have. */
  board.key = (rows, { curveEnds, best }) => {
    const some = (has) => rows.some(has);
    const unweighted = (row) => known(row.start_to_end_unweighted) && !known(row.start_to_end);
    const range = (low, high) => `${Math.round(low * 100)} to ${Math.round(high * 100)}`;
    const entries = [
      [some((row) => known(row.score_low)), "Dot and line", "nDCG@10 and its 95 % interval, on one axis for all rows."],
      [!some((row) => known(row.score_low)), "Dot", "nDCG@10, on one axis for all rows."],
      [best, "Behind", "Points behind the best of these data, which the thin upright line marks." + (some((row) => row.rank) ? " Cannot be said: whether it is worse than the best. Models of which that cannot be said share a range of ranks." : "")],
      [some((row) => row.curve), "Over position", `nDCG@10 from the start of documents to their end, axis ${range(curveEnds.low, curveEnds.high)}.` +
        (some((row) => row.null_band) ? " Gray: the null band, which contains 95 % of bins if position has no effect." : "") +
        (some((row) => known(row.window_end)) ? " Dashes: from here on most evidence is beyond the model’s window." : "")],
      [some((row) => known(row.effect)), "Start to end", "First third of documents minus the last, in points: positive if the beginning is found better." +
        (some(unweighted) ? " Of published results, read from the authors’ figures, the thirds are not weighted by queries, and there is no interval; an average is over the languages whose figure could be read precisely." : "")],
      [some((row) => known(row.best_psi)), "PSI", "1 − worst / best position." + (some((row) => !known(row.psi) && known(row.best_psi)) ? " Observed: as published, which chance increases." : "")],
    ];
    return entries.filter(([shown]) => shown).map(([, term, text]) => el("span", {}, el("b", {}, term), ` ${text} `));
  };
}
