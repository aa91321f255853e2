// Whole sequences of the uRNN with matrices of Fourier transforms, on as many samples as there are
// lanes at a time. A step makes z = D_3 R_2 F^-1 D_2 Pi R_1 F D_1 h + addend, and h = rescale(z).
//
// Factors that change one coordinate at a time are applied where a transform reads. The backward pass
// is given z of each step: back from there, and forth from the state before it, everything between is
// known after a single transform.
#include "unitary.h"

#include <atomic>

#include "threads.h"
#include "unitary_tile.h"

namespace {

constexpr float SMALL = 1e-5f;  // added to moduli before dividing by them

inline Vec positive(Vec x) { return x < 0.f ? fill(0.f) : x; }

int64_t forward_floats(int64_t n) {
  return 3 * Arena::rounded(n * PAIR) + Arena::rounded(Transform::scratch(n));
}

void forward_tile(const Samples &k, Arena &arena) {
  const Factors &f = k.f;
  const int64_t n = f.n;
  float *h = arena.take(n * PAIR), *there = arena.take(n * PAIR), *back = arena.take(n * PAIR);
  float *scratch = arena.take(Transform::scratch(n));
  read_tile(k, k.a.h0 + k.at(), h);
  for (int64_t t = 0; t < k.s.steps; t++) {
    f.transform.forward(there, scratch, [=, &f](int64_t j) { return times(coordinate(h, j), f.first, j); });
    const Complex before = product(f.before, there, n);
    f.transform.inverse(back, scratch, [=, &f](int64_t p) {
      const int64_t q = f.from[p];
      return times(coordinate(there, q) - times(before, f.before, q), f.second, p);
    });
    const Complex after = product(f.after, back, n);
    const Bits live = k.live(t);
    const bool ragged = k.a.lengths;
    const int64_t next = t + 1 < k.s.steps ? k.at(t + 1) - k.at(t) : 0;
    k.in_runs([&](int64_t j, int64_t count) {
      Run run, states;
      run.read(k, k.a.addends + k.at(t), j, count, next);
      for (int64_t i = 0; i < count; i++) {
        const int64_t c = j + i;
        const Complex z = times(coordinate(back, c) - times(after, f.after, c), f.third, c) + run[i];
        const Vec modulus = sqrt_of(z.re * z.re + z.im * z.im);
        Complex next = (positive(modulus + k.bias[c]) / (modulus + SMALL)) * z;
        if (ragged) next = chosen(live, next, coordinate(h, c));
        put(h, c, next);
        states.set(i, next);
        run.set(i, ragged ? where(live, z) : z);
      }
      if (k.a.inner) run.write(k, k.a.inner + k.at(t), j, count, next);
      if (k.a.states) states.write(k, k.a.states + k.at(t), j, count, next);
    });
  }
  write_tile(k, h, k.a.last_h + k.at());
}

// What the gradients of the factors and the bias are sums of, lane by lane.
struct GradientSums {
  float *first, *second, *third;  // of phases [n, LANES], the second in the order in which Pi reads
  float *before, *after;          // of vectors [n, PAIR], the first in order of places
  float *bias;                    // [n, LANES]

  GradientSums(Arena &arena, int64_t n) {
    for (float **sum : {&first, &second, &third, &bias}) *sum = zeros(arena, n * LANES);
    for (float **sum : {&before, &after}) *sum = zeros(arena, n * PAIR);
  }
  static int64_t room(int64_t n) { return 4 * Arena::rounded(n * LANES) + 2 * Arena::rounded(n * PAIR); }

 private:
  static float *zeros(Arena &arena, int64_t count) {
    float *p = arena.take(count);
    memset(p, 0, count * 4);
    return p;
  }
};
inline void add(float *sums, int64_t j, Vec x) { store(sums + j * LANES, load(sums + j * LANES) + x); }
inline void add(float *sums, int64_t j, Complex x) { put(sums, j, coordinate(sums, j) + x); }

// The rescaling at some z = s h, and what its slope is made of.
struct Scale {
  Vec scale;   // s
  Vec slope;   // of s by |z|, over |z|
  Vec lifted;  // the slope of s by the bias

  Scale() = default;
  Scale(Complex z, float bias) {
    const Vec square = z.re * z.re + z.im * z.im, modulus = sqrt_of(square);
    const Vec nonzero = square == 0.f ? fill(1.f) : modulus;  // z = 0 takes its slope times 0
    const Vec both = 1.f / (nonzero * (modulus + SMALL)), inverse = both * nonzero;
    const Vec grown = modulus + bias;
    lifted = grown > 0.f ? inverse : fill(0.f);
    scale = positive(grown) * inverse;
    slope = (lifted - scale * inverse) * (both * (modulus + SMALL));
  }
  static Scale read(const float *p, int64_t j) {
    Scale found;
    p += 3 * j * LANES;
    found.scale = load(p), found.slope = load(p + LANES), found.lifted = load(p + 2 * LANES);
    return found;
  }
  void write(float *p, int64_t j) const {
    p += 3 * j * LANES;
    store(p, scale), store(p + LANES, slope), store(p + 2 * LANES, lifted);
  }
};

int64_t backward_floats(int64_t n) {
  return 6 * Arena::rounded(n * PAIR) + Arena::rounded(3 * n * LANES) + Arena::rounded(Transform::scratch(n));
}

class BackwardTile {
 public:
  BackwardTile(const Samples &k, const UnitaryGradients &g, const GradientSums &sums, Arena &arena)
      : k(k), g(g), f(k.f), n(k.f.n), sums(sums), h(arena.take(n * PAIR)), z(arena.take(n * PAIR)),
        value(arena.take(n * PAIR)), grad(arena.take(n * PAIR)), there(arena.take(n * PAIR)),
        held(arena.take(n * PAIR)), scales(arena.take(3 * n * LANES)),
        scratch(arena.take(Transform::scratch(n))) {}

  void run() {
    const int64_t last = k.s.steps - 1;
    if (g.last_h) read_tile(k, g.last_h + k.at(), held);
    else memset(held, 0, n * PAIR * 4);
    k.in_runs([&](int64_t j, int64_t count) { read_state(last, j, count); });
    for (int64_t t = last; t >= 0; t--) {
      through_rescaling(t);
      through_matrix();
    }
    k.in_runs([&](int64_t j, int64_t count) {
      Run run = {};
      for (int64_t i = 0; i < count; i++) run.set(i, through_first(j + i));
      if (g.h0) run.write(k, g.h0 + k.at(), j, count);
    });
  }

 private:
  const Samples &k;
  const UnitaryGradients &g;
  const Factors &f;
  const int64_t n;
  const GradientSums &sums;
  float *const h, *const z;         // the state before or after what is rescaled, and that
  float *const value, *const grad;  // what D_3 was given, and its gradient over sqrt(n)
  float *const there;               // F D_1 h, then what reaches D_1 h, times sqrt(n)
  float *const held;                // what reaches the state of a sample whose step this is not
  float *const scales;
  float *const scratch;
  Complex value_product, grad_product;  // of R_2's vector with both

  // How far the rows of the step before are from those of this one.
  int64_t before(int64_t t) const { return t > 0 ? k.at(t - 1) - k.at(t) : 0; }

  // What was rescaled in step t, and the state that it became; before the first step there is h0.
  void read_state(int64_t t, int64_t j, int64_t count) {
    Run run;
    run.read(k, t < 0 ? k.a.h0 + k.at() : k.a.inner + k.at(t), j, count, before(t));
    for (int64_t i = 0; i < count; i++) {
      if (t < 0) {
        put(h, j + i, run[i]);
        continue;
      }
      const Scale scale(run[i], k.bias[j + i]);
      put(z, j + i, run[i]);
      put(h, j + i, scale.scale * run[i]);
      scale.write(scales, j + i);
    }
  }

  // The gradient by the state h, of what reaches D_1 h.
  Complex through_first(int64_t j) {
    const Complex found = times_conjugate(coordinate(there, j), f.first, j);
    add(sums.first, j, angle_between(coordinate(h, j), found));
    return found;
  }

  // From the gradient by the state after step t to that by what R_2 gave.
  void through_rescaling(int64_t t) {
    const bool last = t + 1 == k.s.steps, ragged = k.a.lengths;
    const Bits live = k.live(t), was_live = last ? Bits{} : k.live(t + 1);
    const float share = (float)(1 / sqrt((double)n));
    Complex of_value = {}, of_grad = {};
    k.in_runs([&](int64_t j, int64_t count) {
      Run addends, states;
      addends.read(k, k.a.addends + k.at(t), j, count, before(t));
      if (g.states) states.read(k, g.states + k.at(t), j, count, before(t));
      for (int64_t i = 0; i < count; i++) {
        const int64_t c = j + i;
        Complex outer = last ? coordinate(held, c) : through_first(c);
        if (ragged && !last) outer = chosen(was_live, outer, coordinate(held, c));
        if (g.states) outer = outer + states[i];
        if (ragged) {
          put(held, c, outer);
          outer = where(live, outer);
        }
        const Scale at = Scale::read(scales, c);
        const Complex inner = coordinate(z, c);
        const Vec along = inner.re * outer.re + inner.im * outer.im;
        const Complex back = at.scale * outer + (along * at.slope) * inner;
        add(sums.bias, c, along * at.lifted);
        const Complex product = inner - addends[i];
        add(sums.third, c, angle_between(product, back));
        addends.set(i, back);
        const Complex one = times_conjugate(product, f.third, c);
        const Complex other = fill(share) * times_conjugate(back, f.third, c);
        of_value = of_value + times_conjugate(one, f.after, c);
        of_grad = of_grad + times_conjugate(other, f.after, c);
        put(value, c, one), put(grad, c, other);
      }
      if (g.addends) addends.write(k, g.addends + k.at(t), j, count, before(t));
      read_state(t - 1, j, count);
    });
    value_product = of_value, grad_product = of_grad;
  }

  // From there to what reaches D_1 h.
  void through_matrix() {
    f.transform.forward(there, scratch, [this](int64_t j) { return times(coordinate(h, j), f.first, j); });
    f.transform.forward(grad, scratch, [this](int64_t j) {
      const Complex after = coordinate(grad, j);
      const Complex before = coordinate(value, j) - times(value_product, f.after, j);
      add(sums.after, j, by_conjugate(after, value_product) - by_conjugate(before, grad_product));
      return after - times(grad_product, f.after, j);
    });
    const Complex forth = product(f.before, there, n), back = product(f.before_moved, grad, n);
    f.transform.inverse(there, scratch, [this, forth, back](int64_t q) {
      const Complex outer = times_conjugate(coordinate(grad, f.to[q]), f.second_from, q);
      const Complex inner = coordinate(there, q);
      add(sums.second, q, angle_between(inner - times(forth, f.before, q), outer));
      add(sums.before, q, Complex{} - by_conjugate(outer, forth) - by_conjugate(inner, back));
      return outer - times(back, f.before, q);
    });
  }
};

// Where threads add up: for each model, and for each thread that goes on with a model of another.
class AllSums {
 public:
  AllSums(const Runs &runs, int64_t models, int64_t n, Arena &arena) : runs_(runs) {
    arena.reset((models + runs.threads) * GradientSums::room(n) + Arena::rounded(4 * n));
    if (arena.failed()) return;
    for (int64_t model = 0; model < models; model++) of_models_.emplace_back(arena, n);
    for (int64_t thread = 0; thread < runs.threads; thread++)
      of_threads_.push_back(runs.goes_on(thread) ? GradientSums(arena, n) : of_models_[runs.model(thread)]);
  }
  const GradientSums &of(int64_t thread, int64_t model) const {
    return model > runs_.model(thread) ? of_models_[model] : of_threads_[thread];
  }
  // All of a model, in the threads' order: the same numbers in every run.
  std::vector<GradientSums> of(int64_t model) const {
    std::vector<GradientSums> found{of_models_[model]};
    for (int64_t thread = 1; thread < runs_.threads; thread++)
      if (runs_.goes_on(thread) && runs_.model(thread) == model) found.push_back(of_threads_[thread]);
    return found;
  }

 private:
  const Runs runs_;
  std::vector<GradientSums> of_models_, of_threads_;
};

// A model's sums over lanes and threads, where they are wanted; `vector` is room for 2 n doubles.
void finish(const Factors &f, const std::vector<GradientSums> &all, const UnitaryArguments &a,
            const UnitaryGradients &g, int64_t model, double *vector) {
  const int64_t n = f.n;
  const auto total = [&](float *GradientSums::*sum, int64_t at) {
    float found = 0;
    for (const GradientSums &one : all) found += sum_of(load(one.*sum + at * LANES));
    return found;
  };
  float *phases = g.phases ? g.phases + model * 3 * n : nullptr;
  for (int64_t j = 0; j < n; j++) {
    if (phases) {
      phases[j] = total(&GradientSums::first, j);
      phases[n + f.at[f.to[j]]] = total(&GradientSums::second, j);
      phases[2 * n + j] = total(&GradientSums::third, j);
    }
    if (g.bias) g.bias[model * n + j] = total(&GradientSums::bias, j);
  }
  for (int i = 0; i < 2 && g.vectors; i++) {
    const float *given = a.vectors + (model * 2 + i) * 2 * n;
    // Of a direction: what would only make the vector longer does not count.
    double along = 0;
    for (int64_t j = 0; j < n; j++) {
      const int64_t at = i ? j : f.at[j];
      for (int part = 0; part < 2; part++) {
        double found = total(i ? &GradientSums::after : &GradientSums::before, 2 * j + part);
        if (i) found *= sqrt((double)n);
        vector[part * n + at] = found;
        along += found * given[part * n + at];
      }
    }
    const double length = f.lengths[i];
    for (int64_t k = 0; k < 2 * n; k++) {
      const double across = vector[k] - along / (length * length) * given[k];
      g.vectors[(model * 2 + i) * 2 * n + k] = length > 0 ? (float)(SQRT_2 / length * across) : 0.f;
    }
  }
}

// Threads that are worth starting: each has a fraction of a millisecond to do at least.
Runs runs_of(const UnitaryShape &s) {
  const int64_t each = (s.batch + LANES - 1) / LANES, tiles = s.models * each;
  const double work = double(s.steps) * tiles * s.size * 100;
  return {std::max<int64_t>(1, std::min({s.threads, tiles, int64_t(work / 4e5) + 1})), tiles, each};
}

// The transform, and each model's factors; none where memory ran out.
struct Matrices {
  std::vector<Transform> transform;
  std::vector<Factors> factors;

  Matrices(const UnitaryShape &s, const UnitaryArguments &a, Arena &arena) {
    arena.reset(Transform::room(s.size) + s.models * Factors::room(s.size));
    if (arena.failed()) return;
    transform.emplace_back(arena, s.size, a.roots);
    factors.reserve(s.models);
    for (int64_t model = 0; model < s.models; model++) factors.emplace_back(s, a, model, transform[0], arena);
  }
};

// work(thread, samples, arena) for every tile.
template <class Work>
int over_tiles(const UnitaryShape &s, const UnitaryArguments &a, const Matrices &matrices, const Runs &runs,
               int64_t floats, Work work) {
  std::atomic<int> failed{0};
  in_parallel(runs, [&](int64_t thread, int64_t begin, int64_t end) {
    TinyIsZero here;
    for (int64_t item = begin; item < end; item++) {
      const int64_t model = item / runs.each;
      tile_arena.reset(floats);
      if (tile_arena.failed()) { failed = 1; return; }
      work(thread, Samples(s, a, matrices.factors[model], model, item % runs.each), tile_arena);
    }
  });
  return failed;
}

}  // namespace

int unitary_forward(const UnitaryShape *shape, const UnitaryArguments *arguments) {
  const UnitaryShape &s = *shape;
  if (!s.models || !s.batch || !s.size) return 0;
  const Matrices matrices(s, *arguments, weights_arena);
  if (matrices.factors.empty()) return 1;
  return over_tiles(s, *arguments, matrices, runs_of(s), forward_floats(s.size),
                    [](int64_t, const Samples &samples, Arena &arena) { forward_tile(samples, arena); });
}

int unitary_backward(const UnitaryShape *shape, const UnitaryArguments *arguments,
                     const UnitaryGradients *gradients) {
  const UnitaryShape &s = *shape;
  if (!s.models || !s.batch || !s.size) return 0;
  const Runs runs = runs_of(s);
  const Matrices matrices(s, *arguments, weights_arena);
  const AllSums sums(runs, s.models, s.size, gradients_arena);
  if (matrices.factors.empty() || gradients_arena.failed()) return 1;
  int failed = over_tiles(s, *arguments, matrices, runs, backward_floats(s.size),
                          [&](int64_t thread, const Samples &samples, Arena &arena) {
                            BackwardTile(samples, *gradients, sums.of(thread, samples.model), arena).run();
                          });
  double *vector = (double *)gradients_arena.take(4 * s.size);
  for (int64_t model = 0; model < s.models && !failed; model++)
    finish(matrices.factors[model], sums.of(model), *arguments, *gradients, model, vector);
  return failed;
}
