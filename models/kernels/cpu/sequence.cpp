// Whole sequences of recurrent cells, forward and backward, on one tile of the batch at a time.
//
// A tile's state stays in the innermost cache over all steps. The backward pass recomputes a step's
// gates from the stored states instead of storing them, and keeps what the weights' gradients need
// for a chunk of steps, so that those are products of good size.
#include "sequence.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "arena.h"
#include "panels.h"

namespace {

constexpr int MOST_GATES = 4;
constexpr int64_t CHUNK_FLOATS = 96 * 1024;  // of a tile's chunk of steps, to stay in L2

int gates_of(const Shape &s) { return s.cell == RNN ? 1 : s.cell == LSTM ? 4 : 3; }

// Gates that read the same vector: all of them, but for the candidate of a GRU that resets before.
struct Group {
  int first, count;
};
int groups_of(const Shape &s, Group out[2]) {
  if (s.cell != GRU_RESET_BEFORE) return out[0] = {0, gates_of(s)}, 1;
  out[0] = {0, 2}, out[1] = {2, 1};
  return 2;
}

// One model's weights, packed. A group's right factors project its vector to `q`, gate g's share of
// which begins at q_at[g].
struct Plan {
  int gates, groups, readers_of[2];
  Group group[2];
  int64_t n, np, d, inputs, q_size, q_first[2], q_at[MOST_GATES];
  const float *bias, *diagonal;  // [G, np] or null
  Panels input[MOST_GATES], main[MOST_GATES], right[2];
  Panels input_back[MOST_GATES], main_back[2], left_back[MOST_GATES], right_back[2];

  explicit Plan(const Shape &s) {
    gates = gates_of(s), groups = groups_of(s, group);
    n = s.size, np = padded(n), d = s.rank, inputs = s.inputs, q_size = 0;
    for (int k = 0; k < groups && d; k++) {
      readers_of[k] = s.readers == 1 ? 1 : group[k].count;
      q_first[k] = q_size;
      for (int i = 0; i < group[k].count; i++)
        q_at[group[k].first + i] = q_size + (readers_of[k] == 1 ? 0 : i * d);
      q_size += padded(readers_of[k] * d);
    }
  }

  int64_t floats(bool backward) const {
    int64_t sum = 2 * Arena::rounded(gates * np) + gates * Arena::rounded(packed_size(inputs, n));
    if (backward) sum += gates * Arena::rounded(packed_size(np, inputs));
    if (!d) {
      sum += gates * Arena::rounded(packed_size(n, n));
      if (backward) sum += 2 * Arena::rounded(packed_size(gates * np, n));
      return sum;
    }
    sum += gates * Arena::rounded(packed_size(d, n));
    sum += 2 * Arena::rounded(packed_size(n, gates * d + LANES));
    if (backward) {
      sum += gates * Arena::rounded(packed_size(np, d));
      sum += 2 * Arena::rounded(packed_size(gates * d, n));
    }
    return sum;
  }

  const float *pad_rows(const float *rows, Arena &arena) const {
    float *out = arena.take(gates * np);
    memset(out, 0, gates * np * 4);
    if (!rows) return out;
    for (int g = 0; g < gates; g++) memcpy(out + g * np, rows + g * n, n * 4);
    return out;
  }

  void pack_weights(const Shape &s, const Arguments &a, int64_t model, bool backward, Arena &arena) {
    const int64_t G = gates, n = this->n, d = this->d, I = inputs;
    bias = pad_rows(a.bias ? a.bias + model * G * n : nullptr, arena);
    diagonal = a.diagonal ? pad_rows(a.diagonal + model * G * n, arena) : nullptr;
    for (int g = 0; g < gates && I; g++) {
      const float *w = a.w_in + (model * G + g) * n * I;
      input[g] = pack<true>(I, n, arena.take(packed_size(I, n)), [=](int64_t k, int64_t j) { return w[j * I + k]; });
      if (backward)
        input_back[g] = pack<false>(np, I, arena.take(packed_size(np, I)),
                             [=](int64_t k, int64_t j) { return k < n ? w[k * I + j] : 0.f; });
    }
    if (!d) {
      const float *w = a.weight + model * G * n * n;
      for (int g = 0; g < gates; g++)
        main[g] = pack<true>(n, n, arena.take(packed_size(n, n)),
                       [=](int64_t k, int64_t j) { return w[(g * n + j) * n + k]; });
      for (int k = 0; k < groups && backward; k++) {
        const int first = group[k].first, np_ = np;
        int64_t depth = group[k].count * np;
        main_back[k] = pack<false>(depth, n, arena.take(packed_size(depth, n)), [=](int64_t row, int64_t j) {
          int64_t g = first + row / np_, i = row % np_;
          return i < n ? w[(g * n + i) * n + j] : 0.f;
        });
      }
      return;
    }
    const float *l = a.left + model * G * n * d, *r = a.right + model * s.readers * d * n;
    for (int g = 0; g < gates; g++) {
      main[g] = pack<true>(d, n, arena.take(packed_size(d, n)),
                     [=](int64_t k, int64_t j) { return l[(g * n + j) * d + k]; });
      if (backward)
        left_back[g] = pack<false>(np, d, arena.take(packed_size(np, d)),
                            [=](int64_t k, int64_t j) { return k < n ? l[(g * n + k) * d + j] : 0.f; });
    }
    for (int k = 0; k < groups; k++) {
      const float *own = r + (s.readers == 1 ? 0 : group[k].first * d * n);
      int64_t columns = readers_of[k] * d;
      right[k] = pack<true>(n, columns, arena.take(packed_size(n, columns)),
                      [=](int64_t i, int64_t j) { return own[j * n + i]; });
      if (backward)
        right_back[k] = pack<false>(columns, n, arena.take(packed_size(columns, n)),
                             [=](int64_t i, int64_t j) { return own[i * n + j]; });
    }
  }
};

// Some rows of the batch of one model, and everything that a step of them needs.
struct Tile {
  const Shape &s;
  const Arguments &a;
  const Plan &p;
  int64_t model, first;
  int rows;

  int64_t at(int64_t t, int row) const {
    return (((model * s.steps) + t) * s.batch + first + row) * s.size;
  }
  const float *x(int64_t t) const {
    return a.x + model * s.x_model + t * s.x_step + first * s.x_row;
  }
  bool over(int64_t t, int row) const {
    return a.lengths && t >= a.lengths[model * s.batch + first + row];
  }

  // What the inputs and the bias add to gate g, in one panel.
  void start(Sums &sums, int64_t t, int g) const {
    sums.each([&](Vec &v, int i, int64_t j) {
      v = a.addends ? load_some(a.addends + at(t, i) * p.gates + g * p.n + j, p.n - j)
                    : load(p.bias + g * p.np + j);
    });
    if (p.inputs) sums.add(x(t), s.x_row, p.input[g]);
  }

  // The recurrent product of gate g and a vector `from` [rows, np] that was projected to q.
  void recur(Sums &sums, int g, const float *from, const float *q) const {
    if (!p.d) return sums.add(from, p.np, p.main[g]);
    if (p.diagonal)
      sums.each([&](Vec &v, int i, int64_t j) {
        v += load(p.diagonal + g * p.np + j) * load(from + i * p.np + j);
      });
    sums.add(q + p.q_at[g], p.q_size, p.main[g]);
  }

  void project(int group, const float *from, float *q) const {
    if (p.d) multiply(rows, from, p.np, p.right[group], q + p.q_first[group], p.q_size, true);
  }
};

// Gates of a tile's step: [rows][4][np], in the order of the cell; a GRU that resets after its
// matrix has W_q h in the fourth place.
struct Scratch {
  float *gates, *reset, *q;
  float *gate(int g, int row, int64_t np) const { return gates + (row * MOST_GATES + g) * np; }
};

void rnn_step(const Tile &k, int64_t t, const float *h, float *next, const Scratch &w) {
  const Shape &s = k.s;
  const bool inner = s.activation == ABS;
  k.project(0, h, w.q);
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    k.start(sums, t, 0);
    k.recur(sums, 0, h, w.q);
    sums.each([&](Vec z, int i, int64_t j) {
      Vec y = activate(z, s.activation, s.slope);
      store(next + i * k.p.np + j, y);
      if (k.a.states) store_some(k.a.states + k.at(t, i) + j, inner ? z : y, k.p.n - j);
    });
  });
}

// Gate g by f(sum), for all gates of a group.
template <class F>
void open_gates(const Tile &k, int64_t t, int first, int count, const float *from, const Scratch &w, F f) {
  for (int g = first; g < first + count; g++)
    for_panels(k.rows, k.p.n, [&](Sums &sums) {
      k.start(sums, t, g);
      k.recur(sums, g, from, w.q);
      sums.each([&](Vec z, int i, int64_t j) { store(w.gate(g, i, k.p.np) + j, f(g, z)); });
    });
}

void lstm_step(const Tile &k, int64_t t, const float *h, const float *c, float *next, float *next_c,
               const Scratch &w) {
  const int64_t np = k.p.np;
  k.project(0, h, w.q);
  open_gates(k, t, 0, 4, h, w, [](int g, Vec z) { return g == 2 ? tanh_of(z) : sigmoid_of(z); });
  for (int i = 0; i < k.rows; i++)
    for (int64_t j = 0; j < np; j += LANES) {
      Vec enter = load(w.gate(0, i, np) + j), forget = load(w.gate(1, i, np) + j);
      Vec candidate = load(w.gate(2, i, np) + j), leave = load(w.gate(3, i, np) + j);
      Vec cell = forget * load(c + i * np + j) + enter * candidate;
      store(next_c + i * np + j, cell);
      store(next + i * np + j, leave * tanh_of(cell));
    }
}

void gru_before_step(const Tile &k, int64_t t, const float *h, float *next, const Scratch &w) {
  const int64_t np = k.p.np;
  k.project(0, h, w.q);
  open_gates(k, t, 0, 2, h, w, [](int, Vec z) { return sigmoid_of(z); });
  for (int i = 0; i < k.rows; i++)
    for (int64_t j = 0; j < np; j += LANES)
      store(w.reset + i * np + j, load(w.gate(1, i, np) + j) * load(h + i * np + j));
  k.project(1, w.reset, w.q);
  open_gates(k, t, 2, 1, w.reset, w, [](int, Vec z) { return tanh_of(z); });
  for (int i = 0; i < k.rows; i++)
    for (int64_t j = 0; j < np; j += LANES) {
      Vec q = load(w.gate(2, i, np) + j);
      store(next + i * np + j, q + load(w.gate(0, i, np) + j) * (load(h + i * np + j) - q));
    }
}

void gru_after_step(const Tile &k, int64_t t, const float *h, float *next, const Scratch &w) {
  const int64_t np = k.p.np;
  k.project(0, h, w.q);
  open_gates(k, t, 0, 2, h, w, [](int, Vec z) { return sigmoid_of(z); });
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    sums.zero();
    k.recur(sums, 2, h, w.q);
    sums.each([&](Vec z, int i, int64_t j) { store(w.gate(3, i, np) + j, z); });
    k.start(sums, t, 2);
    sums.each([&](Vec z, int i, int64_t j) {
      Vec update = load(w.gate(0, i, np) + j), reset = load(w.gate(1, i, np) + j);
      Vec q = tanh_of(z + reset * load(w.gate(3, i, np) + j));
      store(w.gate(2, i, np) + j, q);
      store(next + i * np + j, q + update * (load(h + i * np + j) - q));
    });
  });
}

void step(const Tile &k, int64_t t, const float *h, const float *c, float *next, float *next_c,
          const Scratch &w) {
  switch (k.s.cell) {
    case RNN: return rnn_step(k, t, h, next, w);
    case GRU_RESET_BEFORE: return gru_before_step(k, t, h, next, w);
    case GRU_RESET_AFTER: return gru_after_step(k, t, h, next, w);
    default: return lstm_step(k, t, h, c, next, next_c, w);
  }
}

void load_rows(const float *from, int64_t n, int64_t np, int rows, float *to) {
  for (int i = 0; i < rows; i++)
    for (int64_t j = 0; j < np; j += LANES)
      store(to + i * np + j, from ? load_some(from + i * n + j, n - j) : (Vec){});
}
void store_rows(const float *from, int64_t n, int64_t np, int rows, float *to) {
  for (int i = 0; i < rows; i++) memcpy(to + i * n, from + i * np, n * 4);
}

int64_t forward_floats(const Plan &p) {
  return 4 * Arena::rounded(TILE_ROWS * p.np) + Arena::rounded(TILE_ROWS * MOST_GATES * p.np) +
         Arena::rounded(TILE_ROWS * p.np) + Arena::rounded(TILE_ROWS * p.q_size);
}

Scratch scratch(const Plan &p, Arena &arena) {
  return {arena.take(TILE_ROWS * MOST_GATES * p.np), arena.take(TILE_ROWS * p.np),
          arena.take(TILE_ROWS * p.q_size)};
}

void forward_tile(const Tile &k, Arena &arena) {
  const Shape &s = k.s;
  const int64_t n = s.size, np = k.p.np, own = (k.model * s.batch + k.first) * n;
  const bool lstm = s.cell == LSTM;
  float *h = arena.take(TILE_ROWS * np), *next = arena.take(TILE_ROWS * np);
  float *c = arena.take(TILE_ROWS * np), *next_c = arena.take(TILE_ROWS * np);
  Scratch w = scratch(k.p, arena);
  load_rows(k.a.h0 + own, n, np, k.rows, h);
  if (lstm) load_rows(k.a.c0 + own, n, np, k.rows, c);
  for (int64_t t = 0; t < s.steps; t++) {
    step(k, t, h, c, next, next_c, w);
    for (int i = 0; i < k.rows; i++) {
      if (!k.over(t, i)) continue;
      memcpy(next + i * np, h + i * np, np * 4);
      if (lstm) memcpy(next_c + i * np, c + i * np, np * 4);
      if (s.cell == RNN && k.a.states)
        memcpy(k.a.states + k.at(t, i), k.a.states + k.at(t - 1, i), n * 4);
    }
    if (k.a.states && s.cell != RNN)
      for (int i = 0; i < k.rows; i++) memcpy(k.a.states + k.at(t, i), next + i * np, n * 4);
    if (k.a.cells)
      for (int i = 0; i < k.rows; i++) memcpy(k.a.cells + k.at(t, i), next_c + i * np, n * 4);
    std::swap(h, next);
    std::swap(c, next_c);
  }
  store_rows(h, n, np, k.rows, k.a.last_h + own);
  if (lstm) store_rows(c, n, np, k.rows, k.a.last_c + own);
}

// Where one thread adds up what reaches the weights of one model; null: not wanted.
struct WeightGradients {
  float *w_in, *bias, *weight, *left, *right, *diagonal;
};

// What the weights' gradients need of a chunk of steps: row (t, i) of a tile in each.
struct Chunk {
  int64_t steps;
  float *pre;      // [rows, G np]: dL / d(W_g h), zero in padding
  float *pre_in;   // [rows, np]: dL / d(input part) of a candidate, where that differs
  float *h, *v;    // [rows, np]: what the groups read
  float *q, *back; // [rows, q_size]: R h, and L^T pre
  float *x;        // [rows, I]
};

struct BackwardTile {
  const Tile &k;
  const Gradients &g;
  Chunk c;
  Scratch w;
  float *grad, *next_grad, *grad_c, *unused, *unused_c, *cell, *reset_grad;

  const Plan &p() const { return k.p; }

  // next = init + sum over the group's gates of W_g^T pre_g, row by row.
  template <class Init>
  void propagate(int group, int64_t row, float *out, Init init) {
    const Plan &p = k.p;
    const int64_t wide = p.gates * p.np;
    const Group gr = p.group[group];
    const float *pre = c.pre + row * wide;
    float *back = c.back + row * p.q_size;
    if (p.d && p.readers_of[group] == 1) {
      for_panels(k.rows, p.d, [&](Sums &sums) {
        sums.zero();
        for (int i = gr.first; i < gr.first + gr.count; i++)
          sums.add(pre + i * p.np, wide, p.left_back[i]);
        sums.each([&](Vec v, int i, int64_t j) {
          store_some(back + i * p.q_size + p.q_first[group] + j, v, p.d - j);
        });
      });
    } else if (p.d) {
      for (int i = gr.first; i < gr.first + gr.count; i++)
        multiply(k.rows, pre + i * p.np, wide, p.left_back[i], back + p.q_at[i], p.q_size, false);
    }
    for_panels(k.rows, p.n, [&](Sums &sums) {
      sums.each([&](Vec &v, int i, int64_t j) { v = init(i, j); });
      if (p.d) {
        if (p.diagonal)
          for (int gate = gr.first; gate < gr.first + gr.count; gate++)
            sums.each([&](Vec &v, int i, int64_t j) {
              v += load(p.diagonal + gate * p.np + j) * load(pre + i * wide + gate * p.np + j);
            });
        sums.add(back + p.q_first[group], p.q_size, p.right_back[group]);
      } else {
        sums.add(pre + gr.first * p.np, wide, p.main_back[group]);
      }
      sums.each([&](Vec v, int i, int64_t j) { store(out + i * p.np + j, v); });
    });
  }

  float *pre(int64_t row, int gate) const { return c.pre + row * k.p.gates * k.p.np + gate * k.p.np; }
  // dL / d(input part) of a gate.
  const float *pre_in(int64_t row, int gate) const {
    return k.s.cell == GRU_RESET_AFTER && gate == 2 ? c.pre_in + row * k.p.np : pre(row, gate);
  }
  int64_t pre_in_row(int gate) const {
    return k.s.cell == GRU_RESET_AFTER && gate == 2 ? k.p.np : k.p.gates * k.p.np;
  }
  void silence(int64_t row) {
    memset(pre(row, 0), 0, k.p.gates * k.p.np * 4);
    if (k.s.cell == GRU_RESET_AFTER) memset(c.pre_in + row * k.p.np, 0, k.p.np * 4);
  }

  void rnn(int64_t t, int64_t row) {
    const int64_t np = k.p.np, n = k.p.n;
    k.project(0, c.h + row * np, c.q + row * k.p.q_size);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec stored = load_some(k.a.states + k.at(t, i) + j, n - j);
        store(pre(row + i, 0) + j, load(grad + i * np + j) * slope_from(stored, k.s.activation, k.s.slope));
      }
    hide(t, row);
    propagate(0, row, next_grad, [](int, int64_t) { return (Vec){}; });
  }

  void lstm(int64_t t, int64_t row) {
    const int64_t np = k.p.np;
    load_cells(t - 1);
    lstm_step(k, t, c.h + row * np, cell, unused, unused_c, w);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec enter = load(w.gate(0, i, np) + j), forget = load(w.gate(1, i, np) + j);
        Vec candidate = load(w.gate(2, i, np) + j), leave = load(w.gate(3, i, np) + j);
        Vec y = tanh_of(load(unused_c + i * np + j)), g = load(grad + i * np + j);
        Vec inner = load(grad_c + i * np + j) + g * leave * (1.f - y * y);
        store(pre(row + i, 0) + j, inner * candidate * enter * (1.f - enter));
        store(pre(row + i, 1) + j, inner * load(cell + i * np + j) * forget * (1.f - forget));
        store(pre(row + i, 2) + j, inner * enter * (1.f - candidate * candidate));
        store(pre(row + i, 3) + j, g * y * leave * (1.f - leave));
        if (!k.over(t, i)) store(grad_c + i * np + j, inner * forget);
      }
    hide(t, row);
    propagate(0, row, next_grad, [](int, int64_t) { return (Vec){}; });
  }

  void gru_before(int64_t t, int64_t row) {
    const int64_t np = k.p.np;
    const float *h = c.h + row * np;
    gru_before_step(k, t, h, unused, w);
    memcpy(c.v + row * np, w.reset, k.rows * np * 4);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec update = load(w.gate(0, i, np) + j), q = load(w.gate(2, i, np) + j);
        Vec g = load(grad + i * np + j);
        store(pre(row + i, 0) + j, g * (load(h + i * np + j) - q) * update * (1.f - update));
        store(pre(row + i, 2) + j, g * (1.f - update) * (1.f - q * q));
      }
    hide(t, row);
    propagate(1, row, reset_grad, [](int, int64_t) { return (Vec){}; });
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec reset = load(w.gate(1, i, np) + j);
        store(pre(row + i, 1) + j,
              load(reset_grad + i * np + j) * load(h + i * np + j) * reset * (1.f - reset));
      }
    propagate(0, row, next_grad, [&](int i, int64_t j) {
      return load(grad + i * np + j) * load(w.gate(0, i, np) + j) +
             load(reset_grad + i * np + j) * load(w.gate(1, i, np) + j);
    });
  }

  void gru_after(int64_t t, int64_t row) {
    const int64_t np = k.p.np;
    const float *h = c.h + row * np;
    gru_after_step(k, t, h, unused, w);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec update = load(w.gate(0, i, np) + j), reset = load(w.gate(1, i, np) + j);
        Vec q = load(w.gate(2, i, np) + j), inner = load(w.gate(3, i, np) + j);
        Vec g = load(grad + i * np + j), candidate = g * (1.f - update) * (1.f - q * q);
        store(pre(row + i, 0) + j, g * (load(h + i * np + j) - q) * update * (1.f - update));
        store(pre(row + i, 1) + j, candidate * inner * reset * (1.f - reset));
        store(pre(row + i, 2) + j, candidate * reset);
        store(c.pre_in + (row + i) * np + j, candidate);
      }
    hide(t, row);
    propagate(0, row, next_grad, [&](int i, int64_t j) {
      return load(grad + i * np + j) * load(w.gate(0, i, np) + j);
    });
  }

  // Rows whose sequence is over add nothing.
  void hide(int64_t t, int64_t row) {
    for (int i = 0; i < k.rows; i++)
      if (k.over(t, i)) silence(row + i);
  }

  void load_cells(int64_t t) {
    const int64_t n = k.p.n;
    const float *from = t < 0 ? k.a.c0 + (k.model * k.s.batch + k.first) * n : k.a.cells + k.at(t, 0);
    load_rows(from, n, k.p.np, k.rows, cell);
  }

  // h of step t - 1, as step t read it.
  void load_state(int64_t t, float *to) {
    const int64_t n = k.p.n, np = k.p.np;
    if (t == 0) return load_rows(k.a.h0 + (k.model * k.s.batch + k.first) * n, n, np, k.rows, to);
    load_rows(k.a.states + k.at(t - 1, 0), n, np, k.rows, to);
    if (k.s.cell == RNN && k.s.activation == ABS)
      for (int64_t j = 0; j < k.rows * np; j += LANES) store(to + j, activate(load(to + j), ABS, 0));
  }

  void add_rows(const float *from, float *to) {
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < k.p.np; j += LANES)
        store(to + i * k.p.np + j, load(to + i * k.p.np + j) + load_some(from + i * k.p.n + j, k.p.n - j));
  }

  // What reaches the step's results from outside of the sequence.
  void take_outer(int64_t t) {
    const int64_t n = k.p.n, np = k.p.np;
    if (g.cells) add_rows(g.cells + k.at(t, 0), grad_c);
    if (!g.states) return;
    if (k.s.cell != RNN || k.s.activation != ABS) return add_rows(g.states + k.at(t, 0), grad);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec stored = load_some(k.a.states + k.at(t, i) + j, n - j);
        Vec e = load_some(g.states + k.at(t, i) + j, n - j) * slope_from(stored, ABS, 0);
        store(grad + i * np + j, load(grad + i * np + j) + e);
      }
  }

  void inputs(int64_t t, int64_t row) {
    const Plan &p = k.p;
    const int64_t I = p.inputs;
    for (int i = 0; i < k.rows && I; i++) memcpy(c.x + (row + i) * I, k.x(t) + i * k.s.x_row, I * 4);
    if (g.addends)
      for (int gate = 0; gate < p.gates; gate++)
        for (int i = 0; i < k.rows; i++)
          memcpy(g.addends + k.at(t, i) * p.gates + gate * p.n, pre_in(row + i, gate), p.n * 4);
    if (!g.x) return;
    float *out = g.x + ((k.model * k.s.steps + t) * k.s.batch + k.first) * I;
    for_panels(k.rows, I, [&](Sums &sums) {
      sums.zero();
      for (int gate = 0; gate < p.gates; gate++)
        sums.add(pre_in(row, gate), pre_in_row(gate), p.input_back[gate]);
      sums.each([&](Vec v, int i, int64_t j) { store_some(out + i * I + j, v, I - j); });
    });
  }

  void add_column_sums(const float *a, int64_t a_row, const float *b, int64_t rows, float *out) {
    for (int64_t j = 0; j < k.p.n; j += LANES) {
      Vec sum = {};
      if (b) for (int64_t r = 0; r < rows; r++) sum += load(a + r * a_row + j) * load(b + r * k.p.np + j);
      else for (int64_t r = 0; r < rows; r++) sum += load(a + r * a_row + j);
      store_some(out + j, load_some(out + j, k.p.n - j) + sum, k.p.n - j);
    }
  }

  void weights(int64_t rows, const WeightGradients &out) {
    const Plan &p = k.p;
    const int64_t n = p.n, np = p.np, d = p.d, I = p.inputs, wide = p.gates * np;
    for (int group = 0; group < p.groups; group++) {
      const Group gr = p.group[group];
      const float *from = group ? c.v : c.h;
      for (int gate = gr.first; gate < gr.first + gr.count; gate++) {
        const float *own = c.pre + gate * np;
        if (out.weight) add_outer(rows, n, n, own, wide, from, np, out.weight + gate * n * n, n);
        if (out.left)
          add_outer(rows, n, d, own, wide, c.q + p.q_at[gate], p.q_size, out.left + gate * n * d, d);
        if (out.diagonal) add_column_sums(own, wide, from, rows, out.diagonal + gate * n);
      }
      if (!out.right) continue;
      float *right = out.right + (k.s.readers == 1 ? 0 : gr.first * d * n);
      add_outer(rows, p.readers_of[group] * d, n, c.back + p.q_first[group], p.q_size, from, np, right, n);
    }
    for (int gate = 0; gate < p.gates; gate++) {
      const float *own = pre_in(0, gate);
      const int64_t row = pre_in_row(gate);
      if (out.w_in && I) add_outer(rows, n, I, own, row, c.x, I, out.w_in + gate * n * I, I);
      if (out.bias) add_column_sums(own, row, nullptr, rows, out.bias + gate * n);
    }
  }

  void run(const WeightGradients &out) {
    const Shape &s = k.s;
    const int64_t n = s.size, np = k.p.np, own = (k.model * s.batch + k.first) * n;
    load_rows(g.last_h ? g.last_h + own : nullptr, n, np, k.rows, grad);
    load_rows(g.last_c ? g.last_c + own : nullptr, n, np, k.rows, grad_c);
    for (int64_t end = s.steps; end > 0; end -= c.steps) {
      const int64_t begin = std::max<int64_t>(0, end - c.steps);
      for (int64_t t = end - 1; t >= begin; t--) {
        const int64_t row = (t - begin) * k.rows;
        load_state(t, c.h + row * np);
        take_outer(t);
        switch (s.cell) {
          case RNN: rnn(t, row); break;
          case GRU_RESET_BEFORE: w.q = c.q + row * k.p.q_size, gru_before(t, row); break;
          case GRU_RESET_AFTER: w.q = c.q + row * k.p.q_size, gru_after(t, row); break;
          default: w.q = c.q + row * k.p.q_size, lstm(t, row);
        }
        inputs(t, row);
        for (int i = 0; i < k.rows; i++)
          if (k.over(t, i)) memcpy(next_grad + i * np, grad + i * np, np * 4);
        std::swap(grad, next_grad);
      }
      weights((end - begin) * k.rows, out);
    }
    if (g.h0) store_rows(grad, n, np, k.rows, g.h0 + own);
    if (g.c0) store_rows(grad_c, n, np, k.rows, g.c0 + own);
  }
};

int64_t row_floats(const Shape &s, const Plan &p) {
  int64_t floats = p.gates * p.np + p.np + 2 * p.q_size + p.inputs;
  if (s.cell == GRU_RESET_AFTER || s.cell == GRU_RESET_BEFORE) floats += p.np;
  return floats;
}
int64_t chunk_steps(const Shape &s, const Plan &p) {
  int64_t steps = CHUNK_FLOATS / (TILE_ROWS * row_floats(s, p));
  return std::min(std::max<int64_t>(steps, 4), s.steps);
}
int64_t backward_floats(const Shape &s, const Plan &p) {
  const int64_t rows = chunk_steps(s, p) * TILE_ROWS;
  return 8 * Arena::rounded(0) + rows * row_floats(s, p) + forward_floats(p) +
         8 * Arena::rounded(TILE_ROWS * p.np);
}

void backward_tile(const Tile &k, const Gradients &g, const WeightGradients &out, Arena &arena) {
  const Shape &s = k.s;
  const Plan &p = k.p;
  Chunk c;
  c.steps = chunk_steps(s, p);
  const int64_t rows = c.steps * k.rows, tile = TILE_ROWS * p.np;
  c.pre = arena.take(rows * p.gates * p.np);
  c.pre_in = s.cell == GRU_RESET_AFTER ? arena.take(rows * p.np) : nullptr;
  c.h = arena.take(rows * p.np);
  c.v = s.cell == GRU_RESET_BEFORE ? arena.take(rows * p.np) : nullptr;
  c.q = arena.take(rows * p.q_size), c.back = arena.take(rows * p.q_size);
  c.x = arena.take(rows * p.inputs);
  Scratch w = scratch(p, arena);
  BackwardTile b{k, g, c, w, arena.take(tile), arena.take(tile), arena.take(tile), arena.take(tile),
                 arena.take(tile), arena.take(tile), arena.take(tile)};
  b.run(out);
}

// Threads that are worth starting: each has a fraction of a millisecond to do at least.
int64_t worthwhile_threads(const Shape &s, int64_t items) {
  const int64_t row = s.size * gates_of(s) * (s.inputs + (s.rank ? 2 * s.rank : s.size));
  const double work = double(s.models) * s.steps * s.batch * row;
  return std::max<int64_t>(1, std::min({s.threads, items, int64_t(work / 4e6) + 1}));
}

// All tiles of all models, cut into runs of neighbours, one for each thread.
template <class Work> void in_parallel(int64_t threads, int64_t items, Work work) {
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; i++)
    others.emplace_back(work, i, items * i / threads, items * (i + 1) / threads);
  work(0, 0, items / threads);
  for (std::thread &other : others) other.join();
}

struct Tiles {
  int64_t per_model, batch;
  explicit Tiles(const Shape &s) : per_model((s.batch + TILE_ROWS - 1) / TILE_ROWS), batch(s.batch) {}
  int64_t first(int64_t i) const { return batch * i / per_model; }
  Tile tile(const Shape &s, const Arguments &a, const Plan &p, int64_t item) const {
    int64_t i = item % per_model;
    return {s, a, p, item / per_model, first(i), (int)(first(i + 1) - first(i))};
  }
};

thread_local Arena weights_arena, tile_arena, gradients_arena;

// The packed weights of every model, in memory of the arena.
bool make_plans(const Shape &s, const Arguments &a, bool backward, Arena &arena,
                std::vector<Plan> &plans) {
  Plan layout(s);
  arena.reset(s.models * layout.floats(backward));
  if (arena.failed()) return false;
  plans.assign(s.models, layout);
  for (int64_t m = 0; m < s.models; m++) plans[m].pack_weights(s, a, m, backward, arena);
  return true;
}

}  // namespace

struct Packed {
  Arena arena;
  std::vector<Plan> plans;
};

Packed *sequence_pack(const Shape *shape, const Arguments *arguments) {
  Packed *packed = new Packed;
  if (make_plans(*shape, *arguments, false, packed->arena, packed->plans)) return packed;
  delete packed;
  return nullptr;
}

void sequence_unpack(Packed *packed) { delete packed; }

int sequence_forward(const Shape *shape, const Arguments *arguments, const Packed *packed) {
  const Shape &s = *shape;
  if (!s.batch || !s.models) return 0;
  std::vector<Plan> made;
  if (!packed && !make_plans(s, *arguments, false, weights_arena, made)) return 1;
  const std::vector<Plan> &plans = packed ? packed->plans : made;
  Tiles tiles(s);
  std::atomic<int> failed{0};
  const int64_t items = s.models * tiles.per_model;
  in_parallel(worthwhile_threads(s, items), items, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; item++) {
      const Plan &p = plans[item / tiles.per_model];
      tile_arena.reset(forward_floats(p));
      if (tile_arena.failed()) { failed = 1; return; }
      forward_tile(tiles.tile(s, *arguments, p, item), tile_arena);
    }
  });
  return failed;
}

namespace {

struct Sizes {
  int64_t w_in, bias, weight, left, right, diagonal;
  Sizes(const Shape &s, const Plan &p)
      : w_in(p.gates * p.n * p.inputs), bias(p.gates * p.n), weight(p.d ? 0 : p.gates * p.n * p.n),
        left(p.gates * p.n * p.d), right(s.readers * p.d * p.n), diagonal(p.gates * p.n) {}
  int64_t sum() const { return w_in + bias + weight + left + right + diagonal; }
};

// Model m's part of the caller's gradients.
WeightGradients part(const Gradients &g, const Sizes &z, int64_t m) {
  auto at = [m](float *p, int64_t size) { return p ? p + m * size : nullptr; };
  return {at(g.w_in, z.w_in), at(g.bias, z.bias), at(g.weight, z.weight),
          at(g.left, z.left), at(g.right, z.right), at(g.diagonal, z.diagonal)};
}

// The same parts in one block of a thread's own memory.
WeightGradients private_part(const Gradients &g, const Sizes &z, float *block) {
  auto next = [&block](float *wanted, int64_t size) {
    float *p = wanted ? block : nullptr;
    block += size;
    return p;
  };
  WeightGradients out;
  out.w_in = next(g.w_in, z.w_in), out.bias = next(g.bias, z.bias);
  out.weight = next(g.weight, z.weight), out.left = next(g.left, z.left);
  out.right = next(g.right, z.right), out.diagonal = next(g.diagonal, z.diagonal);
  return out;
}

void add(float *to, const float *from, int64_t size) {
  for (int64_t i = 0; to && i < size; i++) to[i] += from[i];
}

}  // namespace

int sequence_backward(const Shape *shape, const Arguments *arguments, const Gradients *gradients) {
  const Shape &s = *shape;
  if (!s.batch || !s.models) return 0;
  std::vector<Plan> plans;
  if (!make_plans(s, *arguments, true, weights_arena, plans)) return 1;
  Tiles tiles(s);
  const Sizes sizes(s, plans[0]);
  const int64_t items = s.models * tiles.per_model;
  const int64_t threads = worthwhile_threads(s, items);
  // With one thread sums go straight to the caller. Others add up in memory of their own, which is
  // added in the threads' order: the same numbers in every run.
  const bool alone = threads == 1;
  if (!alone) {
    gradients_arena.reset(threads * s.models * Arena::rounded(sizes.sum()));
    if (gradients_arena.failed()) return 1;
  }
  std::vector<float *> blocks(alone ? 0 : threads * s.models);
  for (float *&block : blocks) {
    block = gradients_arena.take(sizes.sum());
    memset(block, 0, sizes.sum() * 4);
  }
  std::atomic<int> failed{0};
  in_parallel(threads, items, [&](int64_t thread, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; item++) {
      const int64_t model = item / tiles.per_model;
      const Plan &p = plans[model];
      tile_arena.reset(backward_floats(s, p));
      if (tile_arena.failed()) { failed = 1; return; }
      WeightGradients out = alone ? part(*gradients, sizes, model)
                                  : private_part(*gradients, sizes, blocks[thread * s.models + model]);
      backward_tile(tiles.tile(s, *arguments, p, item), *gradients, out, tile_arena);
    }
  });
  for (int64_t i = 0; i < (int64_t)blocks.size(); i++) {
    WeightGradients to = part(*gradients, sizes, i % s.models);
    WeightGradients from = private_part(*gradients, sizes, blocks[i]);
    add(to.w_in, from.w_in, sizes.w_in), add(to.bias, from.bias, sizes.bias);
    add(to.weight, from.weight, sizes.weight), add(to.left, from.left, sizes.left);
    add(to.right, from.right, sizes.right), add(to.diagonal, from.diagonal, sizes.diagonal);
  }
  return failed;
}
