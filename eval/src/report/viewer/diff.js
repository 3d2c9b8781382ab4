// Differences between two texts, word by word.

const MOST_CELLS = 4e6;

const words = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

// Two lists of [text, whether the other side has it too]. Longest common subsequence between the common ends; what is too
// long for its table counts as different.
function difference(left, right) {
  const [a, b] = [words(left), words(right)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const kept = [new Uint8Array(a.length), new Uint8Array(b.length)];
  for (const side of kept) side.fill(1, 0, head).fill(1, side.length - tail);
  common(a.slice(head, a.length - tail), b.slice(head, b.length - tail), (i, j) => {
    kept[0][head + i] = 1;
    kept[1][head + j] = 1;
  });
  return [pieces(a, kept[0]), pieces(b, kept[1])];
}

function common(a, b, keep) {
  const width = b.length + 1;
  if ((a.length + 1) * width > MOST_CELLS) return;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j]
        ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) keep(i++, j++);
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
    else j++;
  }
}

function pieces(list, kept) {
  const joined = [];
  list.forEach((word, place) => {
    const last = joined[joined.length - 1];
    if (last && last[1] === Boolean(kept[place])) last[0] += word;
    else joined.push([word, Boolean(kept[place])]);
  });
  return joined;
}
