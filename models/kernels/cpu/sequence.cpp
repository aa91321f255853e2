// Whole sequences of recurrent cells, forward and backward, on one tile of the batch at a time.
//
// A tile's state stays in the innermost cache over all steps. The backward pass reads a step's gates
// where the forward pass was given room to keep them, and else computes them again from the states.
// What the weights' gradients need it keeps for a chunk of steps, so that those are products of good
// size.
#include "sequence.h"

#include <atomic>

#include "reverse.h"
#include "threads.h"

namespace {

constexpr int64_t CHUNK_FLOATS = 96 * 1024;  // of a tile's chunk of steps, to stay in L2
constexpr int64_t AHEAD = 2;  // steps by which the backward pass asks for states before it reads them

// What the forward pass keeps of a tile's model for the backward pass, if there is room: the gates of all
// steps and samples [T, B, places, np], then q [T, B, q_size]. How the batch is cut plays no part in it.
struct Kept {
  const Tile &k;
  int places;
  float *gates, *q;  // of the model's first sample; null: nothing is kept

  explicit Kept(const Tile &tile) : k(tile), places(kept_places(tile.s)), gates(nullptr), q(nullptr) {
    if (!k.a.kept) return;
    gates = k.a.kept + k.model * kept_floats(k.s, k.p);
    q = gates + samples() * places * k.p.np;
  }
  int64_t samples() const { return k.s.steps * k.s.batch; }
  float *q_at(int64_t t) const { return q + (t * k.s.batch + k.first) * k.p.q_size; }
  // In the place of the gates of a step in scratch memory.
  void take_gates(int64_t t, Scratch &w) const {
    if (!gates || !places) return;
    w.gates = gates + (t * k.s.batch + k.first) * places * k.p.np, w.places = places, w.all = true;
  }
  void take(int64_t t, Scratch &w) const {
    take_gates(t, w);
    if (gates && k.p.q_size) w.q = q_at(t);
  }
  // What is behind the last sample's, so that all numbers are defined.
  void clear_rest() const {
    const int64_t used = samples() * (places * k.p.np + k.p.q_size);
    if (gates && !k.first) memset(gates + used, 0, (kept_floats(k.s, k.p) - used) * 4);
  }
};

void rnn_step(const Tile &k, int64_t t, const float *h, float *next, const Scratch &w) {
  const Shape &s = k.s;
  const bool inner = s.activation == ABS;
  k.project(0, h, w.q);
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    k.open(sums, t, 0, h, w.q);
    sums.each([&](Vec z, int i, int64_t j) {
      Vec y = activate(z, s.activation, s.slope);
      store(next + i * k.p.np + j, y);
      if (k.a.states) store_some(k.a.states + k.at(t, i) + j, inner ? z : y, k.p.n - j);
    });
  });
}

// Without `next` the gates alone are wanted, by a backward pass.
void lstm_step(const Tile &k, int64_t t, const float *h, const float *c, float *next, float *next_c,
               const Scratch &w) {
  const int64_t np = k.p.np;
  k.project(0, h, w.q);
  open_gates(k, t, 0, 3, h, w, [](int g, Vec z) { return g == 2 ? tanh_of(z) : sigmoid_of(z); });
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    k.open(sums, t, 3, h, w.q);
    sums.each([&](Vec z, int i, int64_t j) {
      Vec leave = sigmoid_of(z), enter = load(w.gate(0, i, np) + j), forget = load(w.gate(1, i, np) + j);
      if (w.all) store(w.gate(3, i, np) + j, leave);
      if (!next) return;
      Vec cell = forget * load(c + i * np + j) + enter * load(w.gate(2, i, np) + j);
      store(next_c + i * np + j, cell);
      store(next + i * np + j, leave * tanh_of(cell));
    });
  });
}

void gru_before_step(const Tile &k, int64_t t, const float *h, float *next, const Scratch &w) {
  const int64_t np = k.p.np;
  k.project(0, h, w.q);
  open_gates(k, t, 0, 1, h, w, [](int, Vec z) { return sigmoid_of(z); });
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    k.open(sums, t, 1, h, w.q);
    sums.each([&](Vec z, int i, int64_t j) {
      Vec reset = sigmoid_of(z);
      if (w.all) store(w.gate(1, i, np) + j, reset);
      store(w.reset + i * np + j, reset * load(h + i * np + j));
    });
  });
  k.project(1, w.reset, w.q);
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    k.open(sums, t, 2, w.reset, w.q);
    sums.each([&](Vec z, int i, int64_t j) {
      Vec q = tanh_of(z);
      if (w.all) store(w.gate(2, i, np) + j, q);
      if (next) store(next + i * np + j, q + load(w.gate(0, i, np) + j) * (load(h + i * np + j) - q));
    });
  });
}

void gru_after_step(const Tile &k, int64_t t, const float *h, float *next, const Scratch &w) {
  const int64_t np = k.p.np;
  k.project(0, h, w.q);
  open_gates(k, t, 0, 2, h, w, [](int, Vec z) { return sigmoid_of(z); });
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    Product inner = sums.into();
    inner.bias = k.p.product_bias + sums.column;
    inner.out = w.gate(3, sums.first, np) + sums.column, inner.out_row = w.places * np;
    k.recur(inner, sums, 2, h, w.q);
    sums.run(inner);
    Product outer = sums.into();
    k.begin(outer, sums, t, 2);
    sums.run(outer);
    sums.each([&](Vec z, int i, int64_t j) {
      Vec product = load(w.gate(3, i, np) + j);
      Vec q = tanh_of(z + load(w.gate(1, i, np) + j) * product);
      if (w.all) store(w.gate(2, i, np) + j, q);
      if (next) store(next + i * np + j, q + load(w.gate(0, i, np) + j) * (load(h + i * np + j) - q));
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

int64_t forward_floats(const Plan &p) {
  return 4 * Arena::rounded(p.rows * p.np) + scratch_floats(p);
}

void forward_tile(const Tile &k, Arena &arena) {
  const Shape &s = k.s;
  const int64_t n = s.size, np = k.p.np, own = (k.model * s.batch + k.first) * n;
  const bool lstm = s.cell == LSTM;
  float *h = arena.take(k.p.rows * np), *next = arena.take(k.p.rows * np);
  float *c = arena.take(k.p.rows * np), *next_c = arena.take(k.p.rows * np);
  Scratch w = scratch(k.p, arena);
  const Kept kept(k);
  kept.clear_rest();
  load_rows(k.a.h0 + own, n, np, k.rows, h);
  if (lstm) load_rows(k.a.c0 + own, n, np, k.rows, c);
  for (int64_t t = 0; t < s.steps; t++) {
    if (k.a.states && t + AHEAD < s.steps) prefetch_to_write(k.a.states + k.at(t + AHEAD, 0), k.rows * s.size);
    if (k.a.cells && t + AHEAD < s.steps) prefetch_to_write(k.a.cells + k.at(t + AHEAD, 0), k.rows * s.size);
    kept.take(t, w);
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

struct BackwardTile : Reverse {
  const Gradients &g;
  const Transposed transposed;
  const Kept kept;
  Scratch w;
  // Of an LSTM: c_(t-1) and c_t.
  float *grad, *next_grad, *grad_c, *cell, *next_cell, *reset_grad;

  BackwardTile(const Tile &tile, const Gradients &gradients, const Chunk &chunk, const WeightGradients &out,
               Arena &arena)
      : Reverse{tile, chunk, out}, g(gradients), transposed(tile.p, tile.s.steps * tile.rows),
        kept(tile), w(scratch(tile.p, arena)) {
    w.all = true;
    const int64_t sums = tile.p.gates * transposed.rows() * tile.p.np;
    c.transposed = arena.take(sums);
    memset(c.transposed, 0, sums * 4);
    for (float **p : {&grad, &next_grad, &grad_c, &cell, &next_cell, &reset_grad})
      *p = arena.take(tile.p.rows * tile.p.np);
  }

  void rnn(int64_t t, int64_t row) {
    const int64_t np = k.p.np, n = k.p.n;
    if (!kept.gates) k.project(0, c.h + row * np, w.q);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec stored = load_some(k.a.states + k.at(t, i) + j, n - j);
        store(pre(row + i, 0) + j, load(grad + i * np + j) * slope_from(stored, k.s.activation, k.s.slope));
      }
    hide(t, row);
    propagate(0, row, next_grad, nullptr);
  }

  void lstm(int64_t t, int64_t row) {
    const int64_t np = k.p.np;
    std::swap(cell, next_cell);
    load_cells(t - 1);
    if (!kept.gates) lstm_step(k, t, c.h + row * np, cell, nullptr, nullptr, w);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec enter = load(w.gate(0, i, np) + j), forget = load(w.gate(1, i, np) + j);
        Vec candidate = load(w.gate(2, i, np) + j), leave = load(w.gate(3, i, np) + j);
        Vec y = tanh_of(load(next_cell + i * np + j)), g = load(grad + i * np + j);
        Vec inner = load(grad_c + i * np + j) + g * leave * (1.f - y * y);
        store(pre(row + i, 0) + j, inner * candidate * enter * (1.f - enter));
        store(pre(row + i, 1) + j, inner * load(cell + i * np + j) * forget * (1.f - forget));
        store(pre(row + i, 2) + j, inner * enter * (1.f - candidate * candidate));
        store(pre(row + i, 3) + j, g * y * leave * (1.f - leave));
        if (!k.over(t, i)) store(grad_c + i * np + j, inner * forget);
      }
    hide(t, row);
    propagate(0, row, next_grad, nullptr);
  }

  void gru_before(int64_t t, int64_t row) {
    const int64_t np = k.p.np;
    const float *h = c.h + row * np;
    w.reset = c.v + row * np;
    if (!kept.gates) gru_before_step(k, t, h, nullptr, w);
    else
      for (int i = 0; i < k.rows; i++)
        for (int64_t j = 0; j < np; j += LANES)
          store(w.reset + i * np + j, load(w.gate(1, i, np) + j) * load(h + i * np + j));
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec update = load(w.gate(0, i, np) + j), q = load(w.gate(2, i, np) + j);
        Vec g = load(grad + i * np + j);
        store(pre(row + i, 0) + j, g * (load(h + i * np + j) - q) * update * (1.f - update));
        store(pre(row + i, 2) + j, g * (1.f - update) * (1.f - q * q));
      }
    hide(t, row);
    propagate(1, row, reset_grad, nullptr);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec reset = load(w.gate(1, i, np) + j), inner = load(reset_grad + i * np + j) * reset;
        store(pre(row + i, 1) + j, inner * load(h + i * np + j) * (1.f - reset));
        store(next_grad + i * np + j, inner + load(grad + i * np + j) * load(w.gate(0, i, np) + j));
      }
    propagate(0, row, next_grad, next_grad);
  }

  void gru_after(int64_t t, int64_t row) {
    const int64_t np = k.p.np;
    const float *h = c.h + row * np;
    if (!kept.gates) gru_after_step(k, t, h, nullptr, w);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec update = load(w.gate(0, i, np) + j), reset = load(w.gate(1, i, np) + j);
        Vec q = load(w.gate(2, i, np) + j), inner = load(w.gate(3, i, np) + j);
        Vec g = load(grad + i * np + j), candidate = g * (1.f - update) * (1.f - q * q);
        store(pre(row + i, 0) + j, g * (load(h + i * np + j) - q) * update * (1.f - update));
        store(pre(row + i, 1) + j, candidate * inner * reset * (1.f - reset));
        store(pre(row + i, 2) + j, candidate * reset);
        store(c.pre_in + (row + i) * np + j, candidate);
        store(next_grad + i * np + j, g * update);
      }
    hide(t, row);
    propagate(0, row, next_grad, next_grad);
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
    for (int i = 0; i < k.rows; i++) {
      float *to = c.x + (row + i) * (1 + I);
      to[0] = 1;
      if (I == 1) to[1] = k.x(t)[i * k.s.x_row];  // a call of memcpy for each would take longer
      else if (I) memcpy(to + 1, k.x(t) + i * k.s.x_row, I * 4);
    }
    if (g.addends)
      for (int gate = 0; gate < p.gates; gate++)
        for (int i = 0; i < k.rows; i++)
          memcpy(g.addends + k.at(t, i) * p.gates + gate * p.n, pre_in(row + i, gate), p.n * 4);
    if (!g.x) return;
    float *out = g.x + ((k.model * k.s.steps + t) * k.s.batch + k.first) * I;
    for_panels(k.rows, I, [&](Sums &sums) {
      Product product;
      product.out = out + sums.first * I + sums.column, product.out_row = I, product.columns = I - sums.column;
      for (int gate = 0; gate < p.gates; gate++)
        sums.add(product, pre_in(row, gate), pre_in_row(gate), p.input_back[gate]);
      sums.run(product);
    });
  }

  void run() {
    const Shape &s = k.s;
    const int64_t n = s.size, np = k.p.np, own = (k.model * s.batch + k.first) * n;
    load_rows(g.last_h ? g.last_h + own : nullptr, n, np, k.rows, grad);
    load_rows(g.last_c ? g.last_c + own : nullptr, n, np, k.rows, grad_c);
    if (s.cell == LSTM) load_cells(s.steps - 1);
    for (int64_t end = s.steps; end > 0; end -= c.steps) {
      const int64_t begin = std::max<int64_t>(0, end - c.steps);
      for (int64_t t = end - 1; t >= begin; t--) {
        const int64_t row = (t - begin) * k.rows;
        load_state(t, c.h + row * np);
        if (t > AHEAD) prefetch(k.a.states + k.at(t - 1 - AHEAD, 0), k.rows * n);
        take_outer(t);
        w.q = q(row);
        kept.take_gates(t, w);
        if (kept.gates) memcpy(w.q, kept.q_at(t), k.rows * k.p.q_size * 4);
        switch (s.cell) {
          case RNN: rnn(t, row); break;
          case GRU_RESET_BEFORE: gru_before(t, row); break;
          case GRU_RESET_AFTER: gru_after(t, row); break;
          default: lstm(t, row);
        }
        inputs(t, row);
        for (int i = 0; i < k.rows; i++)
          if (k.over(t, i)) memcpy(next_grad + i * np, grad + i * np, np * 4);
        std::swap(grad, next_grad);
      }
      weights((end - begin) * k.rows, transposed);
    }
    write_transposed(transposed);
    if (g.h0) store_rows(grad, n, np, k.rows, g.h0 + own);
    if (g.c0) store_rows(grad_c, n, np, k.rows, g.c0 + own);
  }
};

int64_t row_floats(const Shape &s, const Plan &p) {
  int64_t floats = p.wide + p.np + (p.d ? 2 * p.q_size : 0) + 1 + p.inputs;
  if (s.cell == GRU_RESET_AFTER || s.cell == GRU_RESET_BEFORE) floats += p.np;
  return floats;
}
int64_t chunk_steps(const Shape &s, const Plan &p) {
  int64_t steps = CHUNK_FLOATS / (p.rows * row_floats(s, p));
  return std::min(std::max<int64_t>(steps, 4), s.steps);
}
int64_t backward_floats(const Shape &s, const Plan &p) {
  const int64_t rows = chunk_steps(s, p) * p.rows;
  const int64_t sums = p.gates * (p.d + 1 + p.inputs) * p.np;
  return 9 * Arena::rounded(0) + rows * row_floats(s, p) + scratch_floats(p) + sums +
         Arena::rounded(p.rows * p.q_size) + 8 * Arena::rounded(p.rows * p.np);
}

void backward_tile(const Tile &k, const Gradients &g, const WeightGradients &out, Arena &arena) {
  const Shape &s = k.s;
  const Plan &p = k.p;
  Chunk c;
  c.steps = chunk_steps(s, p);
  const int64_t rows = c.steps * k.rows;
  c.pre = arena.take(rows * p.wide);
  c.pre_in = s.cell == GRU_RESET_AFTER ? arena.take(rows * p.np) : nullptr;
  c.h = arena.take(rows * p.np);
  c.v = s.cell == GRU_RESET_BEFORE ? arena.take(rows * p.np) : nullptr;
  c.q = arena.take(p.kept(rows) * p.q_size), c.q_row = p.kept_row(), c.back = arena.take(p.d ? rows * p.q_size : 0);
  c.x = arena.take(rows * (1 + p.inputs));
  BackwardTile(k, g, c, out, arena).run();
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
  Tiles tiles(s, plans[0]);
  std::atomic<int> failed{0};
  const int64_t items = s.models * tiles.per_model;
  in_parallel(Runs{worthwhile_threads(s, items), items, tiles.per_model}, [&](int64_t, int64_t begin, int64_t end) {
    TinyIsZero here;
    for (int64_t item = begin; item < end; item++) {
      const Plan &p = plans[item / tiles.per_model];
      tile_arena.reset(forward_floats(p));
      if (tile_arena.failed()) { failed = 1; return; }
      forward_tile(tiles.tile(s, *arguments, p, item), tile_arena);
    }
  });
  return failed;
}

int sequence_backward(const Shape *shape, const Arguments *arguments, const Gradients *gradients) {
  const Shape &s = *shape;
  if (!s.batch || !s.models) return 0;
  std::vector<Plan> plans;
  if (!make_plans(s, *arguments, true, weights_arena, plans)) return 1;
  Tiles tiles(s, plans[0]);
  const Sizes sizes(s, plans[0]);
  const int64_t items = s.models * tiles.per_model;
  const Runs runs{worthwhile_threads(s, items), items, tiles.per_model};
  Accumulators sums(*gradients, sizes, runs, 1, gradients_arena);
  if (sums.failed()) return 1;
  std::atomic<int> failed{0};
  in_parallel(runs, [&](int64_t thread, int64_t begin, int64_t end) {
    TinyIsZero here;
    for (int64_t item = begin; item < end; item++) {
      const int64_t model = item / tiles.per_model;
      const Plan &p = plans[model];
      tile_arena.reset(backward_floats(s, p));
      if (tile_arena.failed()) { failed = 1; return; }
      backward_tile(tiles.tile(s, *arguments, p, item), *gradients, sums.of(thread, model), tile_arena);
    }
  });
  sums.finish();
  return failed;
}
