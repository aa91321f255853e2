// Stacks of square layers, forward and backward: plain, residual or highway.
//
// A thread takes its rows of a model's batch through one layer after the other, so that a layer's
// weights are packed once for all its rows, and their gradients are products over all of them.
#include <atomic>

#include "reverse.h"
#include "threads.h"

namespace {

bool keeps_inner(const Shape &s) { return s.activation == ABS && s.cell != HIGHWAY_LAYERS; }

Vec gate_of(int g, Vec z) { return g ? sigmoid_of(z) : activate(z, RELU, 0); }

// Rows [begin, end) of one model's batch, and the weights of the layer that they pass.
struct Rows {
  const Shape &s;
  const Arguments &a;
  Plan &plan;
  int64_t model, begin, end;

  int64_t count() const { return end - begin; }
  int64_t layers() const { return s.steps; }
  // Where the rows are in a tensor [M, B, n], or in a layer's share of [M, T, B, n].
  int64_t at() const { return (model * s.batch + begin) * s.size; }
  int64_t at(int64_t layer) const { return ((model * s.steps + layer) * s.batch + begin) * s.size; }
  // The layer's weights take the place of the one before.
  void pack(int64_t layer, bool backward) const {
    weights_arena.reset(plan.floats(backward));
    plan.pack_weights(s, a, model * s.steps + layer, backward, weights_arena);
  }
  // f(tile, row): tiles of at most `plan.rows` rows, and where they begin within these rows.
  template <class F> void tiles(F f) const {
    const int64_t n = (count() + plan.rows - 1) / plan.rows;
    for (int64_t i = 0; i < n; i++) {
      const int64_t first = count() * i / n, next = count() * (i + 1) / n;
      f(Tile{s, a, plan, model, begin + first, (int)(next - first)}, first);
    }
  }
  // What a layer reads: the layer before it, or the stack's input.
  void load_input(int64_t layer, float *to) const {
    const int64_t np = plan.np;
    load_rows(layer ? a.states + at(layer - 1) : a.h0 + at(), s.size, np, (int)count(), to);
    if (layer && keeps_inner(s))
      for (int64_t j = 0; j < count() * np; j += LANES) store(to + j, activate(load(to + j), ABS, 0));
  }
};

// f(W x + b), or f(W x + b + passed).
void perceptron_layer(const Tile &k, int64_t layer, const float *x, const float *passed, float *out,
                      const Scratch &w) {
  const Shape &s = k.s;
  const int64_t np = k.p.np;
  k.project(0, x, w.q);
  for_panels(k.rows, k.p.n, [&](Sums &sums) {
    k.open(sums, layer, 0, x, w.q);
    sums.each([&](Vec z, int i, int64_t j) {
      if (passed) z += load(passed + i * np + j);
      Vec y = activate(z, s.activation, s.slope);
      store(out + i * np + j, y);
      if (k.a.states) store_some(k.a.states + k.at(layer, i) + j, keeps_inner(s) ? z : y, k.p.n - j);
    });
  });
}

// h tau + x (1 - tau)
void highway_layer(const Tile &k, int64_t layer, const float *x, float *out, const Scratch &w) {
  const int64_t np = k.p.np;
  k.project(0, x, w.q);
  open_gates(k, layer, 0, 2, x, w, gate_of);
  for (int i = 0; i < k.rows; i++) {
    for (int64_t j = 0; j < np; j += LANES) {
      Vec old = load(x + i * np + j), h = load(w.gate(0, i, np) + j);
      store(out + i * np + j, old + load(w.gate(1, i, np) + j) * (h - old));
    }
    if (k.a.states) memcpy(k.a.states + k.at(layer, i), out + i * np, k.p.n * 4);
  }
}

bool passes(const Shape &s, int64_t layer) { return s.cell == RESIDUAL_LAYERS && layer % 2; }

int64_t forward_floats(const Plan &p, int64_t rows) {
  return 3 * Arena::rounded(rows * p.np) + scratch_floats(p);
}

void forward_rows(const Rows &r, Arena &arena) {
  const Plan &p = r.plan;
  float *x = arena.take(r.count() * p.np), *out = arena.take(r.count() * p.np);
  float *before = arena.take(r.count() * p.np);  // what the layer before read
  Scratch w = scratch(p, arena);
  r.load_input(0, x);
  for (int64_t layer = 0; layer < r.layers(); layer++) {
    r.pack(layer, false);
    r.tiles([&](const Tile &k, int64_t row) {
      const int64_t at = row * p.np;
      if (r.s.cell == HIGHWAY_LAYERS) return highway_layer(k, layer, x + at, out + at, w);
      perceptron_layer(k, layer, x + at, passes(r.s, layer) ? before + at : nullptr, out + at, w);
    });
    // The oldest of the three is free: x is what this layer read, and `out` what the next one does.
    std::swap(before, x);
    std::swap(x, out);
  }
  store_rows(x, p.n, p.np, (int)r.count(), r.a.last_h + r.at());
}

int64_t backward_floats(const Plan &p, int64_t rows) {
  const int64_t each = p.wide + p.np + 3 * p.np;
  const int64_t q = (p.kept(rows) + (p.d ? rows : 0)) * p.q_size;
  const int64_t sums = p.gates * (p.d + 1) * p.np;
  return 10 * Arena::rounded(0) + rows * (each + 1) + q + scratch_floats(p) + sums;
}

// One layer of one tile: the gradient of its result becomes that of what it read.
struct LayerBackward : Reverse {
  const float *grad;
  float *next, *passed;

  void perceptron(int64_t layer, int64_t row) {
    const int64_t np = k.p.np;
    k.project(0, c.h + row * np, q(row));
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec stored = load_some(k.a.states + k.at(layer, i) + j, k.p.n - j);
        Vec g = load(grad + i * np + j) * slope_from(stored, k.s.activation, k.s.slope);
        store(pre(row + i, 0) + j, g);
        if (passes(k.s, layer)) store(passed + i * np + j, g);
      }
    // What a block passes on joins at its first layer; the last layer may be one without a second.
    const bool joins = k.s.cell == RESIDUAL_LAYERS && !passes(k.s, layer) && layer + 1 < k.s.steps;
    propagate(0, row, next, joins ? passed : nullptr);
  }

  void highway(int64_t layer, int64_t row, Scratch w) {
    const int64_t np = k.p.np;
    const float *x = c.h + row * np;
    w.q = q(row);
    k.project(0, x, w.q);
    open_gates(k, layer, 0, 2, x, w, gate_of);
    for (int i = 0; i < k.rows; i++)
      for (int64_t j = 0; j < np; j += LANES) {
        Vec h = load(w.gate(0, i, np) + j), tau = load(w.gate(1, i, np) + j), g = load(grad + i * np + j);
        store(pre(row + i, 0) + j, h > 0.f ? g * tau : (Vec){});
        store(pre(row + i, 1) + j, g * (h - load(x + i * np + j)) * tau * (1.f - tau));
        store(next + i * np + j, g * (1.f - tau));
      }
    propagate(0, row, next, next);
  }
};

void backward_rows(const Rows &r, const Gradients &g, const Accumulators &sums, int64_t thread, Arena &arena) {
  const Plan &p = r.plan;
  const int64_t rows = r.count(), np = p.np;
  Chunk c{};
  c.steps = 1;
  c.pre = arena.take(rows * p.wide), c.h = arena.take(rows * np);
  c.q = arena.take(p.kept(rows) * p.q_size), c.q_row = p.kept_row(), c.back = arena.take(p.d ? rows * p.q_size : 0);
  float *grad = arena.take(rows * np), *next = arena.take(rows * np), *passed = arena.take(rows * np);
  const Transposed transposed(p, rows);
  const int64_t sums_size = p.gates * transposed.rows() * np;
  c.x = arena.take(rows), c.transposed = arena.take(sums_size);
  std::fill(c.x, c.x + rows, 1.f);
  Scratch w = scratch(p, arena);
  load_rows(g.last_h + r.at(), p.n, np, (int)rows, grad);
  for (int64_t layer = r.layers() - 1; layer >= 0; layer--) {
    const WeightGradients to = sums.of(thread, r.model, layer);
    r.pack(layer, true);
    r.load_input(layer, c.h);
    r.tiles([&](const Tile &k, int64_t row) {
      LayerBackward b{{k, c, to}, grad + row * np, next + row * np, passed + row * np};
      if (r.s.cell == HIGHWAY_LAYERS) b.highway(layer, row, w);
      else b.perceptron(layer, row);
    });
    const Tile whole{r.s, r.a, p, r.model, r.begin, p.rows};
    memset(c.transposed, 0, sums_size * 4);
    Reverse gradients{whole, c, to};
    gradients.weights(rows, transposed);
    gradients.write_transposed(transposed);
    std::swap(grad, next);
  }
  if (g.h0) store_rows(grad, p.n, np, (int)rows, g.h0 + r.at());
}

// Each thread's rows of each model; work(thread, rows, arena).
template <class Work>
int over_rows(const Shape &s, const Arguments &a, const Runs &runs, bool backward,
              int64_t (*floats)(const Plan &, int64_t), Work work) {
  std::atomic<int> failed{0};
  in_parallel(runs, [&](int64_t thread, int64_t begin, int64_t end) {
    TinyIsZero here;
    Plan plan(s);
    for (int64_t next; begin < end; begin = next) {
      const int64_t model = begin / s.batch, start = model * s.batch;
      next = std::min(end, start + s.batch);
      tile_arena.reset(floats(plan, next - begin));
      weights_arena.reset(plan.floats(backward));
      if (tile_arena.failed() || weights_arena.failed()) { failed = 1; return; }
      work(thread, Rows{s, a, plan, model, begin - start, next - start}, tile_arena);
    }
  });
  return failed;
}

Runs runs_of(const Shape &s) {
  const int64_t tiles = s.models * ((s.batch + TILE_ROWS - 1) / TILE_ROWS);
  return {worthwhile_threads(s, tiles), s.models * s.batch, s.batch};
}

}  // namespace

int stack_forward(const Shape *shape, const Arguments *arguments) {
  const Shape &s = *shape;
  if (!s.batch || !s.models) return 0;
  return over_rows(s, *arguments, runs_of(s), false, forward_floats,
                   [](int64_t, const Rows &rows, Arena &arena) { forward_rows(rows, arena); });
}

int stack_backward(const Shape *shape, const Arguments *arguments, const Gradients *gradients) {
  const Shape &s = *shape;
  if (!s.batch || !s.models) return 0;
  const Runs runs = runs_of(s);
  const Accumulators sums(*gradients, Sizes(s, Plan(s)), runs, s.steps, gradients_arena);
  if (sums.failed()) return 1;
  int failed = over_rows(s, *arguments, runs, true, backward_floats,
                         [&](int64_t thread, const Rows &rows, Arena &arena) {
                           backward_rows(rows, *gradients, sums, thread, arena);
                         });
  sums.finish();
  return failed;
}
