// What every backward pass has in common: from a step's gradients to the weights and the step before.
#pragma once
#include "threads.h"
#include "tile.h"

// Where one thread adds up what reaches the weights of one model; null: not wanted.
struct WeightGradients {
  float *w_in, *bias, *weight, *left, *right, *diagonal, *u_turns, *v_turns;
};

// What the weights' gradients need of a chunk of steps: row (t, i) of a tile in each.
struct Chunk {
  int64_t steps;
  float *pre;      // [rows, wide]: dL / d(W_g h), zero in padding
  float *pre_in;   // [rows, np]: dL / d(input part) of a candidate, where that differs
  float *h, *v;    // [rows, np]: what the groups read
  float *q, *back; // [rows, q_size]: R h, or W h of packed rotations, and L^T pre
  int64_t q_row;   // from one row of q to the next; 0 where it has one step alone
  float *x;        // [rows, 1 + I]: a 1, for the biases' gradients, and the inputs
  float *transposed; // [G, rows of `Transposed`, np]: sums over the chunks
};

// Gradients of narrow matrices, [n, d] or [n, I], as products of few rows and n columns: n fills the
// vectors that d or I would leave empty. They are turned round once, when all chunks are summed up;
// where that costs more than it saves they are made as they are wanted.
struct Transposed {
  int64_t left, inputs;  // rows, 0 where they are made as they are wanted

  Transposed(const Plan &p, int64_t samples) {
    auto pays = [&](int64_t columns) { return samples * (padded(columns) - columns) > 64 * columns; };
    left = pays(p.d) ? p.d : 0;
    inputs = pays(p.inputs) ? p.inputs : 0;
  }
  // With inputs, the bias is a row before theirs.
  int64_t rows() const { return left + (inputs ? 1 + inputs : 0); }
};

inline void add(float *to, const float *from, int64_t size) {
  for (int64_t i = 0; to && i < size; i++) to[i] += from[i];
}

// One tile going backwards: the gradients of a step are in the chunk's rows from `row` on.
struct Reverse {
  const Tile &k;
  Chunk c;
  const WeightGradients &to;

  float *pre(int64_t row, int gate) const { return c.pre + row * k.p.wide + gate * k.p.np; }
  // dL / d(input part) of a gate.
  const float *pre_in(int64_t row, int gate) const {
    return k.s.cell == GRU_RESET_AFTER && gate == 2 ? c.pre_in + row * k.p.np : pre(row, gate);
  }
  int64_t pre_in_row(int gate) const {
    return k.s.cell == GRU_RESET_AFTER && gate == 2 ? k.p.np : k.p.wide;
  }
  float *q(int64_t row) const { return c.q + row * c.q_row; }
  void silence(int64_t row) {
    memset(pre(row, 0), 0, k.p.gates * k.p.np * 4);
    if (k.s.cell == GRU_RESET_AFTER) memset(c.pre_in + row * k.p.np, 0, k.p.np * 4);
  }

  // out = init + sum over the group's gates of W_g^T pre_g, row by row; init [rows, np] may be out
  // itself, or null.
  void propagate(int group, int64_t row, float *out, const float *init) {
    const Plan &p = k.p;
    const int64_t wide = p.wide;
    const Group gr = p.group[group];
    const float *pre = c.pre + row * wide + gr.first * p.np;
    if (p.turned) {
      if (!init) memset(out, 0, k.rows * p.np * 4);
      else if (init != out) memcpy(out, init, k.rows * p.np * 4);
      for (int i = 0; i < gr.count; i++) {
        const int gate = gr.first + i;
        turn_back(gate, (group ? c.v : c.h) + row * p.np, q(row) + p.q_at[gate], pre + i * p.np, out);
      }
      return;
    }
    if (p.d) project_back(group, pre, c.back + row * p.q_size);
    for_panels(k.rows, p.n, [&](Sums &sums) {
      Product product = sums.into();
      const int64_t at = sums.first * p.np + sums.column;
      if (init) product.given = init + at, product.given_row = p.np;
      product.out = out + at, product.out_row = p.np;
      if (!p.d) sums.add(product, pre, wide, p.main_back[group]);
      else sums.add(product, c.back + row * p.q_size + p.q_first[group], p.q_size, p.right_back[group]);
      if (p.d && p.diagonal) {
        product.diagonal = p.diagonal + gr.first * p.np + sums.column;
        product.from = pre + sums.first * wide + sums.column;
        product.terms = gr.count, product.step = p.np, product.from_row = wide;
      }
      sums.run(product);
    });
  }

  // L^T pre, of a factor R that several gates read their sum.
  void project_back(int group, const float *pre, float *back) const {
    const Plan &p = k.p;
    const Group gr = p.group[group];
    const int64_t wide = p.wide;
    if (p.num_right_of[group] > 1 || gr.count == 1) {
      for (int i = 0; i < gr.count; i++)
        multiply(k.rows, pre + i * p.np, wide, p.left_back[gr.first + i], back + p.q_at[gr.first + i], p.q_size,
                 false);
      return;
    }
    for_panels(k.rows, p.d, [&](Sums &sums) {
      Product product;
      product.out = back + sums.first * p.q_size + p.q_first[group] + sums.column;
      product.out_row = p.q_size;
      product.columns = p.d - sums.column;
      for (int i = 0; i < gr.count; i++) sums.add(product, pre + i * p.np, wide, p.left_back[gr.first + i]);
      sums.run(product);
    });
  }

  // out += W_gate^T pre for a matrix of packed rotations: from what it made of x, its stages are
  // undone side by side with the gradient's.
  void turn_back(int gate, const float *x, const float *product, const float *pre, float *out) {
    const Plan &p = k.p;
    const Stages &u = p.u[gate], &v = p.v[gate];
    turning_arena.reset(2 * Turned::room(p.n));
    Turned y(turning_arena, p.n), g(turning_arena, p.n);
    const int together = turned_rows(p.n);
    for (int row = 0; row < k.rows; row += together) {
      const int count = std::min(together, k.rows - row);
      y.read(count, product + row * p.q_size, p.q_size);
      g.read(count, pre + row * p.wide, p.wide);
      Turned::back_through_turn(count, u, y, g, to.u_turns ? to.u_turns + gate * u.count * p.n : nullptr);
      if (p.diagonal) {
        // Made anew: where the diagonal is 0 nothing of it is left in y.
        y.read(count, x + row * p.np, p.np);
        y.undo(count, v);
        if (to.diagonal) g.add_products(count, y, to.diagonal + gate * p.n);
        g.scale(count, p.diagonal + gate * p.np);
      }
      Turned::back_through_undo(count, v, y, g, to.v_turns ? to.v_turns + gate * v.count * p.n : nullptr);
      g.add_to(count, out + row * p.np, p.np);
    }
  }

  // What a chunk's rows add to the gradients of the weights.
  void weights(int64_t rows, const Transposed &transposed) {
    const WeightGradients &out = to;
    const Plan &p = k.p;
    const int64_t n = p.n, np = p.np, d = p.d, wide = p.wide;
    for (int group = 0; group < p.groups; group++) {
      const Group gr = p.group[group];
      const float *from = group ? c.v : c.h;
      for (int gate = gr.first; gate < gr.first + gr.count; gate++) {
        const float *own = c.pre + gate * np, *q = c.q + p.q_at[gate];
        if (out.weight) add_outer(rows, n, n, own, wide, from, np, out.weight + gate * n * n, n);
        if (out.left && transposed.left)
          add_outer(rows, d, np, q, p.q_size, own, wide, c.transposed + gate * transposed.rows() * np, np);
        else if (out.left)
          add_outer(rows, n, d, own, wide, q, p.q_size, out.left + gate * n * d, d);
        if (out.diagonal && d)
          add_column_sums(rows, n, own, wide, out.diagonal + gate * n,
                          [&](int64_t r, int64_t j) { return load(from + r * np + j); });
      }
      if (!out.right) continue;
      float *right = out.right + (k.s.num_right == 1 ? 0 : gr.first * d * n);
      add_outer(rows, p.num_right_of[group] * d, n, c.back + p.q_first[group], p.q_size, from, np, right, n);
    }
    for (int gate = 0; gate < p.gates; gate++) {
      ends(rows, gate, transposed);
      if (out.bias && k.s.biases == 2)
        add_column_sums(rows, n, pre(0, gate), wide, out.bias + (p.gates + gate) * n,
                        [](int64_t, int64_t) { return fill(1.f); });
    }
  }

  // The bias and the input matrix of a gate.
  void ends(int64_t rows, int gate, const Transposed &transposed) {
    const int64_t n = k.p.n, np = k.p.np, I = k.p.inputs, row = pre_in_row(gate);
    const float *own = pre_in(0, gate);
    if (transposed.inputs && (to.bias || to.w_in)) {
      float *sums = c.transposed + (gate * transposed.rows() + transposed.left) * np;
      return add_outer(rows, 1 + I, np, c.x, 1 + I, own, row, sums, np);
    }
    if (to.bias) add_outer(rows, 1, n, c.x, 1 + I, own, row, to.bias + gate * n, n);
    if (to.w_in) add_outer(rows, n, I, own, row, c.x + 1, 1 + I, to.w_in + gate * n * I, I);
  }

  // Adds what the chunks summed up, before the first of which it is 0, to where it is wanted.
  void write_transposed(const Transposed &transposed) {
    const int64_t n = k.p.n, np = k.p.np, d = k.p.d, I = k.p.inputs;
    for (int gate = 0; gate < k.p.gates; gate++) {
      const float *sums = c.transposed + gate * transposed.rows() * np;
      if (to.left && transposed.left) add_transposed(sums, d, to.left + gate * n * d);
      sums += transposed.left * np;
      if (to.bias && transposed.inputs) add(to.bias + gate * n, sums, n);
      if (to.w_in && transposed.inputs) add_transposed(sums + np, I, to.w_in + gate * n * I);
    }
  }
  // out [n, count] += rows^T
  void add_transposed(const float *rows, int64_t count, float *out) const {
    for (int64_t j = 0; j < k.p.n; j++)
      for (int64_t i = 0; i < count; i++) out[j * count + i] += rows[i * k.p.np + j];
  }
};

struct Sizes {
  int64_t w_in, bias, weight, left, right, diagonal, u_turns, v_turns;
  Sizes(const Shape &s, const Plan &p)
      : w_in(p.gates * p.n * p.inputs), bias(s.biases * p.gates * p.n),
        weight(p.d || p.turned ? 0 : p.gates * p.n * p.n), left(p.gates * p.n * p.d), right(s.num_right * p.d * p.n),
        diagonal(p.gates * p.n), u_turns(p.gates * s.u_stages * p.n), v_turns(p.gates * s.v_stages * p.n) {}
  int64_t sum() const {
    return w_in + bias + weight + left + right + diagonal + u_turns + v_turns;
  }
};

// Model m's part of the caller's gradients.
inline WeightGradients part(const Gradients &g, const Sizes &z, int64_t m) {
  auto at = [m](float *p, int64_t size) { return p ? p + m * size : nullptr; };
  return {at(g.w_in, z.w_in), at(g.bias, z.bias), at(g.weight, z.weight), at(g.left, z.left),
          at(g.right, z.right), at(g.diagonal, z.diagonal), at(g.u_turns, z.u_turns),
          at(g.v_turns, z.v_turns)};
}

// The same parts in one block of a thread's own memory.
inline WeightGradients private_part(const Gradients &g, const Sizes &z, float *block) {
  auto next = [&block](float *wanted, int64_t size) {
    float *p = wanted ? block : nullptr;
    block += size;
    return p;
  };
  WeightGradients out;
  out.w_in = next(g.w_in, z.w_in), out.bias = next(g.bias, z.bias);
  out.weight = next(g.weight, z.weight), out.left = next(g.left, z.left);
  out.right = next(g.right, z.right), out.diagonal = next(g.diagonal, z.diagonal);
  out.u_turns = next(g.u_turns, z.u_turns), out.v_turns = next(g.v_turns, z.v_turns);
  return out;
}

// Where threads add up: the first to come to a model adds to the caller's tensors. One that goes on
// with a model, which can but be its own first one, has memory of its own for it, which is added in
// the threads' order at the end: the same numbers in every run.
class Accumulators {
 public:
  // `sets` of weights of each model.
  Accumulators(const Gradients &g, const Sizes &sizes, const Runs &runs, int64_t sets, Arena &arena)
      : g_(g), sizes_(sizes), runs_(runs), sets_(sets), blocks_(runs.threads) {
    const int64_t size = Arena::rounded(sets * sizes.sum());
    int64_t count = 0;
    for (int64_t thread = 1; thread < runs.threads; thread++) count += runs.goes_on(thread);
    if (!count) return;
    arena.reset(count * size);
    failed_ = arena.failed();
    for (int64_t thread = 1; thread < runs.threads && !failed_; thread++)
      if (runs.goes_on(thread)) blocks_[thread] = (float *)memset(arena.take(size), 0, size * 4);
  }
  bool failed() const { return failed_; }

  WeightGradients of(int64_t thread, int64_t model, int64_t set = 0) const {
    if (model > runs_.model(thread) || !blocks_[thread]) return part(g_, sizes_, model * sets_ + set);
    return private_part(g_, sizes_, blocks_[thread] + set * sizes_.sum());
  }

  void finish() const {
    for (int64_t thread = 1; thread < runs_.threads; thread++)
      for (int64_t set = 0; set < sets_ && blocks_[thread]; set++) {
        const WeightGradients to = part(g_, sizes_, runs_.model(thread) * sets_ + set);
        const WeightGradients from = of(thread, runs_.model(thread), set);
        add(to.w_in, from.w_in, sizes_.w_in), add(to.bias, from.bias, sizes_.bias);
        add(to.weight, from.weight, sizes_.weight), add(to.left, from.left, sizes_.left);
        add(to.right, from.right, sizes_.right), add(to.diagonal, from.diagonal, sizes_.diagonal);
        add(to.u_turns, from.u_turns, sizes_.u_turns), add(to.v_turns, from.v_turns, sizes_.v_turns);
      }
  }

 private:
  const Gradients &g_;
  const Sizes sizes_;
  const Runs runs_;
  const int64_t sets_;
  std::vector<float *> blocks_;  // null where a thread adds to the caller's tensors alone
  bool failed_ = false;
};
