// The weights of a model in the order in which the kernels read them, and a tile of its batch.
#pragma once
#include <algorithm>
#include <vector>

#include "arena.h"
#include "panels.h"
#include "sequence.h"
#include "turns.h"

constexpr int MOST_GATES = 4;
constexpr int64_t NEAR_FLOATS = 96 * 1024;  // of weights that stay in L2 from step to step
constexpr int FAR_TILES = 8;  // register tiles that share what is read of weights that do not

inline int gates_of(const Shape &s) {
  switch (s.cell) {
    case GRU_RESET_BEFORE:
    case GRU_RESET_AFTER: return 3;
    case LSTM: return 4;
    case HIGHWAY_LAYERS: return 2;
    default: return 1;
  }
}

// Gates that read the same vector: all of them, but for the candidate of a GRU that resets before.
struct Group {
  int first, count;
};
inline int groups_of(const Shape &s, Group out[2]) {
  if (s.cell != GRU_RESET_BEFORE) return out[0] = {0, gates_of(s)}, 1;
  out[0] = {0, 2}, out[1] = {2, 1};
  return 2;
}

// Sets of weights in the tensors: one of each model, or of each of its layers.
inline int64_t weight_sets(const Shape &s) {
  return s.models * (s.cell >= PLAIN_LAYERS ? s.steps : 1);
}

// One set of weights, packed. A group's right factors project its vector to `q`, gate g's share of
// which begins at q_at[g].
struct Plan {
  int gates, groups, num_right_of[2];
  int rows;     // of the batch that take a step together, at most
  bool turned;  // whether the matrices are packed rotations
  Group group[2];
  int64_t wide;  // from one row of the gates' gradients [G, np] to the next
  int64_t n, np, d, inputs, q_size, q_first[2], q_at[MOST_GATES];
  Stages u[MOST_GATES], v[MOST_GATES];  // of a matrix of packed rotations, none of others
  const float *bias, *diagonal;  // [G, np]; the diagonal may be null
  const float *product_bias;     // [np]: of W_q h in a GRU that resets after its matrix
  Panels input[MOST_GATES], main[MOST_GATES], right[2];
  Panels input_back[MOST_GATES], main_back[2], left_back[MOST_GATES], right_back[2];

  explicit Plan(const Shape &s) {
    gates = gates_of(s), groups = groups_of(s, group);
    n = s.size, np = padded(n), d = s.rank, inputs = s.inputs, q_size = 0;
    for (int k = 0; k < groups && d; k++) {
      num_right_of[k] = s.num_right == 1 ? 1 : group[k].count;
      q_first[k] = q_size;
      for (int i = 0; i < group[k].count; i++)
        q_at[group[k].first + i] = q_size + (num_right_of[k] == 1 ? 0 : i * d);
      q_size += padded(num_right_of[k] * d);
    }
    turned = s.u_stages > 0;
    for (int g = 0; g < gates; g++)
      u[g] = {nullptr, nullptr, s.u_stages, n, np}, v[g] = {nullptr, nullptr, s.v_stages, n, np};
    // There q has what each gate's matrix makes of its vector.
    for (int g = 0; g < gates && turned; g++) q_at[g] = g * np, q_size += np;
    rows = rows_together(s);
    // Rows that lie a multiple of 2 KB apart share few sets of a cache.
    wide = gates * np + (gates * np % 512 == 0 ? 16 : 0);
  }

  // No more than there are for each thread, and as many whatever other models there are: sums of
  // gradients are made in the same order for a model alone and among others.
  int rows_together(const Shape &s) const {
    const int64_t weights = turned ? 0 : d ? gates * d * np + q_size * n : gates * n * np;
    if (weights <= NEAR_FLOATS) return TILE_ROWS;
    const int64_t threads = std::max<int64_t>(1, s.threads), share = (s.batch + threads - 1) / threads;
    return (int)std::max<int64_t>(TILE_ROWS, std::min<int64_t>(FAR_TILES * TILE_ROWS, share));
  }

  int64_t floats(bool backward) const {
    int64_t sum = 2 * Arena::rounded(gates * np) + Arena::rounded(np);
    sum += gates * Arena::rounded(packed_size(inputs, n));
    if (backward) sum += gates * Arena::rounded(packed_size(np, inputs));
    if (turned) return sum + 2 * Arena::rounded(gates * (u[0].count + v[0].count) * np) + 2 * Arena::rounded(0);
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

  // Rows of q that are kept of so many: those of thin factors are for their gradients.
  int64_t kept(int64_t count) const { return d ? count : rows; }
  // From one of them to the next; 0 where a step's rows take the place of those before.
  int64_t kept_row() const { return d ? q_size : 0; }

  // Zeros where there are no rows.
  float *pad_rows(const float *rows, int64_t count, Arena &arena) const {
    float *out = arena.take(count * np);
    memset(out, 0, count * np * 4);
    if (!rows) return out;
    for (int64_t i = 0; i < count; i++) memcpy(out + i * np, rows + i * n, n * 4);
    return out;
  }

  // Both are added to the same sum, but where a GRU multiplies what its matrix made.
  void pack_biases(const Shape &s, const float *given, Arena &arena) {
    const float *second = s.biases == 2 ? given + gates * n : nullptr;
    const int together = s.cell == GRU_RESET_AFTER ? 2 : gates;
    float *sums = pad_rows(given, gates, arena);
    for (int g = 0; second && g < together; g++)
      for (int64_t j = 0; j < n; j++) sums[g * np + j] += second[g * n + j];
    bias = sums;
    product_bias = pad_rows(second && together < gates ? second + together * n : nullptr, 1, arena);
  }

  void pack_stages(const float *turns, const Shape &s, int64_t set, Stages *of, Arena &arena) const {
    if (!turns) return;
    const int64_t rows = gates * of[0].count;
    const float *cos = pad_rows(turns + set * rows * n, rows, arena);
    const float *sin = pad_rows(turns + (weight_sets(s) + set) * rows * n, rows, arena);
    for (int g = 0; g < gates; g++)
      of[g].cos = cos + g * of[g].count * np, of[g].sin = sin + g * of[g].count * np;
  }

  void pack_weights(const Shape &s, const Arguments &a, int64_t set, bool backward, Arena &arena) {
    const int64_t G = gates, n = this->n, d = this->d, I = inputs;
    pack_biases(s, a.bias ? a.bias + set * s.biases * G * n : nullptr, arena);
    diagonal = a.diagonal ? pad_rows(a.diagonal + set * G * n, gates, arena) : nullptr;
    for (int g = 0; g < gates && I; g++) {
      const float *w = a.w_in + (set * G + g) * n * I;
      input[g] = pack_columns(I, n, arena.take(packed_size(I, n)), w, I);
      if (backward)
        input_back[g] = pack_rows(np, I, arena.take(packed_size(np, I)),
                                  [=](int64_t k) { return k < n ? w + k * I : nullptr; });
    }
    if (turned) {
      pack_stages(a.u_turns, s, set, u, arena);
      pack_stages(a.v_turns, s, set, v, arena);
      return;
    }
    if (!d) {
      const float *w = a.weight + set * G * n * n;
      for (int g = 0; g < gates; g++)
        main[g] = pack_columns(n, n, arena.take(packed_size(n, n)), w + g * n * n, n);
      for (int k = 0; k < groups && backward; k++) {
        const int64_t depth = group[k].count * np, np_ = np;
        const float *own = w + group[k].first * n * n;
        main_back[k] = pack_rows(depth, n, arena.take(packed_size(depth, n)), [=](int64_t row) {
          const int64_t gate = row / np_, i = row % np_;
          return i < n ? own + (gate * n + i) * n : nullptr;
        });
      }
      return;
    }
    const float *l = a.left + set * G * n * d, *r = a.right + set * s.num_right * d * n;
    for (int g = 0; g < gates; g++) {
      const float *own = l + g * n * d;
      main[g] = pack_columns(d, n, arena.take(packed_size(d, n)), own, d);
      if (backward)
        left_back[g] = pack_rows(np, d, arena.take(packed_size(np, d)),
                                 [=](int64_t k) { return k < n ? own + k * d : nullptr; });
    }
    for (int k = 0; k < groups; k++) {
      const float *own = r + (s.num_right == 1 ? 0 : group[k].first * d * n);
      int64_t columns = num_right_of[k] * d;
      right[k] = pack_columns(n, columns, arena.take(packed_size(n, columns)), own, n);
      if (backward)
        right_back[k] = pack_rows(columns, n, arena.take(packed_size(columns, n)),
                                  [=](int64_t i) { return own + i * n; });
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

  // Gate g's sum in one panel: of inputs, bias, and the recurrent product of a vector `from`
  // [rows, np] that was projected to q.
  void open(Sums &sums, int64_t t, int g, const float *from, const float *q) const {
    Product product = sums.into();
    begin(product, sums, t, g);
    recur(product, sums, g, from, q);
    sums.run(product);
  }

  // Starts with what the inputs and the bias add, some of which may be in `sums` by then.
  void begin(Product &product, Sums &sums, int64_t t, int g) const {
    const float *bias = p.bias + g * p.np;
    if (a.addends) {
      sums.each([&](Vec &v, int i, int64_t j) {
        v = load(bias + j) + load_some(a.addends + at(t, i) * p.gates + g * p.n + j, p.n - j);
      });
      return sums.keep(product);
    }
    product.bias = bias + sums.column;
    if (p.inputs > 1) return sums.add(product, x(t), s.x_row, p.input[g]);
    if (!p.inputs) return;
    product.column = p.input[g].data + sums.column;  // which costs less than a part of depth 1
    product.x = x(t) + sums.first * s.x_row, product.x_row = s.x_row;
  }

  // Adds the recurrent product of gate g.
  void recur(Product &product, Sums &sums, int g, const float *from, const float *q) const {
    if (p.turned) return add_turned(product, sums, q + p.q_at[g]);
    if (!p.d) return sums.add(product, from, p.np, p.main[g]);
    if (p.diagonal) {
      product.diagonal = p.diagonal + g * p.np + sums.column;
      product.from = from + sums.first * p.np + sums.column, product.from_row = p.np;
    }
    sums.add(product, q + p.q_at[g], p.q_size, p.main[g]);
  }

  // Adds what rotations made of the vector, which q has as it is.
  void add_turned(Product &product, Sums &sums, const float *q) const {
    if (product.given) return sums.each([&](Vec &v, int i, int64_t j) { v += load(q + i * p.q_size + j); });
    product.given = q + sums.first * p.q_size + sums.column, product.given_row = p.q_size;
  }

  void project(int group, const float *from, float *q) const {
    if (p.turned) return turn(p.group[group], from, q);
    if (p.d) multiply(rows, from, p.np, p.right[group], q + p.q_first[group], p.q_size, true);
  }

  // W_g times the rows, for each gate of a group.
  void turn(const Group &group, const float *from, float *q) const {
    turning_arena.reset(Turned::room(p.n));
    Turned x(turning_arena, p.n);
    const int together = turned_rows(p.n);
    for (int g = group.first; g < group.first + group.count; g++)
      for (int row = 0; row < rows; row += together) {
        const int count = std::min(together, rows - row);
        x.read(count, from + row * p.np, p.np);
        before_u(g, count, x);
        x.turn(count, p.u[g]);
        x.write(count, q + row * p.q_size + p.q_at[g], p.q_size);
      }
  }
  // diag V^T x
  void before_u(int g, int count, Turned &x) const {
    x.undo(count, p.v[g]);
    if (p.diagonal) x.scale(count, p.diagonal + g * p.np);
  }
};

// Gates of a tile's step: [rows][places][np], in the order of the cell; a GRU that resets after its
// matrix has W_q h, with the bias that is added to it, in the fourth place.
struct Scratch {
  float *gates, *reset, *q;
  int places;   // MOST_GATES, or fewer
  bool all;     // whether all gates are wanted, or those alone that the step itself reads again
  float *gate(int g, int row, int64_t np) const { return gates + (row * places + g) * np; }
};

// Gate g by f(sum), for all gates of a group.
template <class F>
inline void open_gates(const Tile &k, int64_t t, int first, int count, const float *from, const Scratch &w, F f) {
  for (int g = first; g < first + count; g++)
    for_panels(k.rows, k.p.n, [&](Sums &sums) {
      k.open(sums, t, g, from, w.q);
      sums.each([&](Vec z, int i, int64_t j) { store(w.gate(g, i, k.p.np) + j, f(g, z)); });
    });
}

inline void load_rows(const float *from, int64_t n, int64_t np, int rows, float *to) {
  if (!from) return (void)memset(to, 0, rows * np * 4);
  if (n == np) return (void)memcpy(to, from, rows * np * 4);
  for (int i = 0; i < rows; i++)
    for (int64_t j = 0; j < np; j += LANES) store(to + i * np + j, load_some(from + i * n + j, n - j));
}
inline void store_rows(const float *from, int64_t n, int64_t np, int rows, float *to) {
  for (int i = 0; i < rows; i++) memcpy(to + i * n, from + i * np, n * 4);
}

// Gates of a step that are of use to a backward pass, with W_q h where it is no gate.
inline int kept_places(const Shape &s) {
  return s.cell == RNN ? 0 : s.cell == GRU_RESET_BEFORE ? 3 : MOST_GATES;
}

// Of one model in `Arguments::kept`: as its caller, who knows no lanes, has counted them.
inline int64_t kept_floats(const Shape &s, const Plan &p) {
  auto rounded = [](int64_t size) { return (size + 15) / 16 * 16; };
  int64_t each = kept_places(s) * rounded(p.n);
  for (int k = 0; k < p.groups && p.d; k++) each += rounded(p.num_right_of[k] * p.d);
  return s.steps * s.batch * each + 32;
}

inline int64_t scratch_floats(const Plan &p) {
  return Arena::rounded(p.rows * MOST_GATES * p.np) + Arena::rounded(p.rows * p.np) +
         Arena::rounded(p.rows * p.q_size);
}

inline Scratch scratch(const Plan &p, Arena &arena) {
  return {arena.take(p.rows * MOST_GATES * p.np), arena.take(p.rows * p.np),
          arena.take(p.rows * p.q_size), MOST_GATES, false};
}

// The packed weights of every model, in memory of the arena.
inline bool make_plans(const Shape &s, const Arguments &a, bool backward, Arena &arena,
                std::vector<Plan> &plans) {
  Plan layout(s);
  arena.reset(s.models * layout.floats(backward));
  if (arena.failed()) return false;
  plans.assign(s.models, layout);
  for (int64_t m = 0; m < s.models; m++) plans[m].pack_weights(s, a, m, backward, arena);
  return true;
}

struct Tiles {
  int64_t per_model, batch;
  Tiles(const Shape &s, const Plan &p) : per_model((s.batch + p.rows - 1) / p.rows), batch(s.batch) {}
  int64_t first(int64_t i) const { return batch * i / per_model; }
  Tile tile(const Shape &s, const Arguments &a, const Plan &p, int64_t item) const {
    int64_t i = item % per_model;
    return {s, a, p, item / per_model, first(i), (int)(first(i + 1) - first(i))};
  }
};
