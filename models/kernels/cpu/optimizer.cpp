// Steps of optimizers over lists of tensors of many members: gradients are clipped, parameters shrunk
// and moved in one pass through memory. The order of operations is that of torch's optimizers.
#include "optimizer.h"

#include <math.h>

#include "threads.h"

namespace {

constexpr int64_t BLOCK = 4096;  // floats of one item of work
constexpr double BETA_1 = 0.9, BETA_2 = 0.999, ALPHA = 0.9;

// Some of a member's numbers in a tensor.
struct Block {
  int64_t tensor, member, begin, count;
};

// All blocks of all members, tensor by tensor, in runs for each thread.
class Blocks {
 public:
  Blocks(const OptimizerShape &s, const int64_t *sizes) : s_(s), sizes_(sizes), ends_(s.tensors) {
    int64_t items = 0, numbers = 0;
    for (int64_t p = 0; p < s.tensors; p++) {
      ends_[p] = items += s.members * each(p);
      numbers += s.members * sizes[p];
    }
    // A thread that is worth starting has a tenth of a millisecond to do.
    runs = {std::max<int64_t>(1, std::min({s.threads, items, numbers / 200000 + 1})), items};
  }
  Runs runs;

  // work(item, block) for every item of a run.
  template <class Work> void in_run(int64_t begin, int64_t end, Work work) const {
    int64_t p = 0;
    for (int64_t item = begin; item < end; item++) {
      while (item >= ends_[p]) p++;
      const int64_t place = item - (ends_[p] - s_.members * each(p)), start = place % each(p) * BLOCK;
      work(item, Block{p, place / each(p), start, std::min(BLOCK, sizes_[p] - start)});
    }
  }

 private:
  int64_t each(int64_t p) const { return (sizes_[p] + BLOCK - 1) / BLOCK; }

  const OptimizerShape &s_;
  const int64_t *sizes_;
  std::vector<int64_t> ends_;  // of the tensors' items
};

// NaN passes.
inline Vec clipped(Vec g, float bound) {
  g = g > bound ? fill(bound) : g;
  return g < -bound ? fill(-bound) : g;
}

// In single precision up to here: a square that overflows is one that torch's norm overflows with.
double squares(const float *g, int64_t count, float bound) {
  Vec sums[4] = {};
  int64_t j = 0;
  for (; j + 4 * LANES <= count; j += 4 * LANES)
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const Vec x = clipped(load(g + j + i * LANES), bound);
      sums[i] += x * x;
    }
  for (; j < count; j += LANES) {
    const Vec x = clipped(load_some(g + j, count - j), bound);
    sums[0] += x * x;
  }
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// What a member's numbers in a tensor have in common.
struct Own {
  bool moves = true, recovers = false;
  float bound, share = 1, recovery;  // share: what clipping by norm leaves
  double rate, plain_rate, decay;  // plain_rate: of the decay, without the scale
  double correction_1 = 1, correction_2 = 1;

  Own(const OptimizerShape &s, const OptimizerArguments &a, int64_t p, int64_t m)
      : bound((float)a.clip_value[m]), recovery((float)a.recovery[m]),
        rate(a.learning_rate[m] * a.scales[p * s.members + m]), plain_rate(a.learning_rate[m]),
        decay(a.weight_decay[m]) {
    if (!isfinite(a.norms[m])) {
      recovers = moves = !isnan(a.recovery[m]);
    } else if (!isinf(a.clip_norm[m])) {
      const float norm = (float)a.norms[m];
      share = std::min(1.f, (float)a.clip_norm[m] * (1 / (norm + 1e-6f)));
    }
    if (s.optimizer != ADAM) return;
    const double step = double(a.steps[p * s.members + m] + 1);
    correction_1 = 1 - pow(BETA_1, step), correction_2 = sqrt(1 - pow(BETA_2, step));
  }
};

// Where a block's numbers are; what an optimizer does not keep is null.
struct Numbers {
  float *parameter, *first, *second;
  const float *gradient;
  int64_t count;
};

// rule(w, g, place) changes the shrunk parameters w by the gradients g.
template <class Rule> inline void walk(const Numbers &n, const Own &o, Rule rule) {
  const float kept = (float)(1 - o.plain_rate * o.decay);
  for (int64_t j = 0; j < n.count; j += LANES) {
    const int64_t left = n.count - j;
    Vec w = load_some(n.parameter + j, left);
    const Vec g = o.recovers ? w * o.recovery : clipped(load_some(n.gradient + j, left), o.bound) * o.share;
    w *= kept;
    rule(w, g, j);
    store_some(n.parameter + j, w, left);
  }
}

// Changes some of the numbers that an optimizer keeps, and gives them.
template <class Change> inline Vec changed(float *kept, int64_t left, Change change) {
  const Vec x = change(load_some(kept, left));
  store_some(kept, x, left);
  return x;
}

void adam(const Numbers &n, const Own &o) {
  const float step = (float)(o.rate / o.correction_1), root = (float)(1 / o.correction_2);
  walk(n, o, [&](Vec &w, Vec g, int64_t j) {
    const Vec mean = changed(n.first + j, n.count - j, [&](Vec x) { return x + (float)(1 - BETA_1) * (g - x); });
    const Vec square = changed(n.second + j, n.count - j,
                               [&](Vec x) { return x * (float)BETA_2 + (float)(1 - BETA_2) * g * g; });
    w -= step * mean / (sqrt_of(square) * root + 1e-8f);
  });
}

void rmsprop(const Numbers &n, const Own &o) {
  walk(n, o, [&](Vec &w, Vec g, int64_t j) {
    const Vec square = changed(n.first + j, n.count - j,
                               [&](Vec x) { return x * (float)ALPHA + (float)(1 - ALPHA) * g * g; });
    w -= (float)o.rate * (g / (sqrt_of(square) + 1e-8f));
  });
}

void adagrad(const Numbers &n, const Own &o) {
  walk(n, o, [&](Vec &w, Vec g, int64_t j) {
    const Vec square = changed(n.first + j, n.count - j, [&](Vec x) { return x + g * g; });
    w -= (float)o.rate * (g / (sqrt_of(square) + 1e-10f));
  });
}

void sgd(const Numbers &n, const Own &o) {
  walk(n, o, [&](Vec &w, Vec g, int64_t) { w -= (float)o.rate * g; });
}

using Step = void (*)(const Numbers &, const Own &);

Step step_of(int64_t optimizer) {
  switch (optimizer) {
    case ADAM: return adam;
    case RMSPROP: return rmsprop;
    case ADAGRAD: return adagrad;
    default: return sgd;
  }
}

}  // namespace

int optimizer_norms(const OptimizerShape *shape, const OptimizerArguments *arguments) {
  const OptimizerShape &s = *shape;
  const OptimizerArguments &a = *arguments;
  const Blocks blocks(s, a.sizes);
  std::vector<double> found(blocks.runs.items);
  in_parallel(blocks.runs, [&](int64_t, int64_t begin, int64_t end) {
    TinyIsZero here;
    blocks.in_run(begin, end, [&](int64_t item, const Block &b) {
      const float *gradient = a.gradients[b.tensor] + b.member * a.sizes[b.tensor] + b.begin;
      found[item] = squares(gradient, b.count, (float)a.clip_value[b.member]);
    });
  });
  // In one order, however many threads there are.
  std::fill(a.norms, a.norms + s.members, 0.);
  blocks.in_run(0, blocks.runs.items, [&](int64_t item, const Block &b) { a.norms[b.member] += found[item]; });
  for (int64_t m = 0; m < s.members; m++) a.norms[m] = sqrt(a.norms[m]);
  return 0;
}

int optimizer_update(const OptimizerShape *shape, const OptimizerArguments *arguments) {
  const OptimizerShape &s = *shape;
  const OptimizerArguments &a = *arguments;
  std::vector<Own> owns;
  for (int64_t p = 0; p < s.tensors; p++)
    for (int64_t m = 0; m < s.members; m++) owns.emplace_back(s, a, p, m);
  const Blocks blocks(s, a.sizes);
  const Step step = step_of(s.optimizer);
  in_parallel(blocks.runs, [&](int64_t, int64_t begin, int64_t end) {
    TinyIsZero here;
    blocks.in_run(begin, end, [&](int64_t, const Block &b) {
      const Own &own = owns[b.tensor * s.members + b.member];
      if (!own.moves) return;
      const int64_t at = b.member * a.sizes[b.tensor] + b.begin;
      const auto part = [&](float *const *of) { return of ? of[b.tensor] + at : nullptr; };
      const Numbers numbers{part(a.parameters), part(a.first), part(a.second), a.gradients[b.tensor] + at, b.count};
      step(numbers, own);
    });
  });
  for (size_t i = 0; i < owns.size(); i++) a.steps[i] += owns[i].moves;
  return 0;
}
