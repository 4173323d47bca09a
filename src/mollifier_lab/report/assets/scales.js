"use strict";
// Numbers as people read them, round ticks, and the way from a value to a place on the screen.
const Scales = (() => {
  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

  // Three digits, no exponent where it can be helped, thousands apart.
  function number(value, digits = 3) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size < 1e-4 || size >= 1e9) return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
    if (size >= 1000) return Math.round(value).toLocaleString("en");
    return trim(value.toPrecision(digits));
  }
  const percent = (value, digits = 3) => `${number(100 * value, digits)} %`;
  const format = (metric, digits = 3) => (value) => (metric.percent ? percent(value, digits) : number(value, digits));

  // About as many ticks as asked for, at 1, 2 or 5 of a power of ten.
  function linearTicks(low, high, count) {
    const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
    const ticks = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) ticks.push(Number((at * step).toPrecision(12)));
    return ticks;
  }

  // 1, 2 and 5 of each power of ten, or powers alone, or every other power: never more than asked for.
  function logTicks(low, high, count) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const inside = (digits, every) => {
      const ticks = [];
      for (let power = first; power <= last; power++) {
        if ((power - first) % every) continue;
        for (const digit of digits) ticks.push(Number(`${digit}e${power}`));
      }
      return ticks.filter((tick) => tick >= low * 0.9999 && tick <= high * 1.0001);
    };
    const choices = [[[1, 2, 3, 5], 1], [[1, 2, 5], 1], [[1, 3], 1], ...[1, 2, 3, 5, 10, 20, 50].map((every) => [[1], every])];
    const found = choices.map((each) => inside(...each));
    return found.find((ticks) => ticks.length <= count && ticks.length > 1) ?? linearTicks(low, high, count).filter((tick) => tick > 0);
  }

  // The span of some values with a little room around it; null where there is none.
  function span(values, log, zero = false) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (value === null || value === undefined || !Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return null;
    if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
    if (zero) { low = Math.min(0, low); high = Math.max(0, high); }
    const room = (high - low || Math.abs(high) || 1) * 0.05;
    return [zero && low === 0 ? 0 : low - room, zero && high === 0 ? 0 : high + room];
  }

  // From values to pixels.
  function scale([low, high], [from, to], log) {
    const at = log ? Math.log : (value) => value;
    const width = at(high) - at(low) || 1;
    const place = (value) => from + ((at(value) - at(low)) / width) * (to - from);
    place.inverse = (pixel) => {
      const value = at(low) + ((pixel - from) / (to - from)) * width;
      return log ? Math.exp(value) : value;
    };
    place.domain = [low, high];
    place.log = log;
    return place;
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  // On a log axis what lies in the middle is the geometric mean.
  const average = (values, log) => (log ? Math.exp(mean(values.map(Math.log))) : mean(values));

  // Exponential moving average without its bias to the start; a gap stays a gap. On a log axis of the logarithms.
  function smooth(values, weight, log) {
    if (!weight) return values;
    let sum = 0, left = 1;
    return values.map((value) => {
      if (value === null || value === undefined || (log && value <= 0)) return null;
      sum = weight * sum + (1 - weight) * (log ? Math.log(value) : value);
      left *= weight;
      return log ? Math.exp(sum / (1 - left)) : sum / (1 - left);
    });
  }

  return { number, percent, format, linearTicks, logTicks, span, scale, average, smooth };
})();
