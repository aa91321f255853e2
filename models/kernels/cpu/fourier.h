// Fourier transforms of as many vectors as there are lanes, side by side.
//
// A coordinate is two vectors of lanes, its real and its imaginary parts, so that a transform of any
// length is made without moving anything between lanes. Transforms are in place. What goes there stands
// in natural order before, and afterwards at `place`s that follow from the digits of the index; the
// inverse undoes it step by step, and so takes those places back to the natural order. Neither is scaled.
#pragma once
#include <type_traits>

#include "arena.h"
#include "vector.h"

struct Complex {
  Vec re, im;
};

constexpr int64_t PAIR = 2 * LANES;  // floats of a coordinate

static inline Complex coordinate(const float *z, int64_t j) {
  return {load(z + j * PAIR), load(z + j * PAIR + LANES)};
}
static inline void put(float *z, int64_t j, Complex x) {
  store(z + j * PAIR, x.re);
  store(z + j * PAIR + LANES, x.im);
}
// By entry j of a table of complex numbers, or by its conjugate.
static inline Complex times(Complex x, const float *table, int64_t j) {
  const float re = table[2 * j], im = table[2 * j + 1];
  return {x.re * re - x.im * im, x.im * re + x.re * im};
}
static inline Complex times_conjugate(Complex x, const float *table, int64_t j) {
  const float re = table[2 * j], im = table[2 * j + 1];
  return {x.re * re + x.im * im, x.im * re - x.re * im};
}

// Short transforms in registers. Exchanging real and imaginary parts before and after makes the inverse.
template <int R> struct Butterfly {
  // Any odd R: coordinates j and R - j meet the same cosines, and sines of opposite signs.
  static inline __attribute__((always_inline)) void apply(Vec *re, Vec *im, const float *cos,
                                                          const float *sin) {
    constexpr int H = (R - 1) / 2;
    Vec sum_re[H], sum_im[H], gap_re[H], gap_im[H];
    const Vec first_re = re[0], first_im = im[0];
#pragma GCC unroll 8
    for (int j = 0; j < H; j++) {
      sum_re[j] = re[j + 1] + re[R - 1 - j], sum_im[j] = im[j + 1] + im[R - 1 - j];
      gap_re[j] = re[j + 1] - re[R - 1 - j], gap_im[j] = im[j + 1] - im[R - 1 - j];
      re[0] += sum_re[j], im[0] += sum_im[j];
    }
#pragma GCC unroll 8
    for (int k = 1; k <= H; k++) {
      Vec even_re = first_re, even_im = first_im, odd_re = {}, odd_im = {};
#pragma GCC unroll 8
      for (int j = 1; j <= H; j++) {
        const float c = cos[j * k % R], s = sin[j * k % R];
        even_re += c * sum_re[j - 1], even_im += c * sum_im[j - 1];
        odd_re += s * gap_re[j - 1], odd_im += s * gap_im[j - 1];
      }
      re[k] = even_re + odd_im, im[k] = even_im - odd_re;
      re[R - k] = even_re - odd_im, im[R - k] = even_im + odd_re;
    }
  }
};

template <> struct Butterfly<2> {
  static inline void apply(Vec *re, Vec *im, const float *, const float *) {
    const Vec gap_re = re[0] - re[1], gap_im = im[0] - im[1];
    re[0] += re[1], im[0] += im[1];
    re[1] = gap_re, im[1] = gap_im;
  }
};

template <> struct Butterfly<4> {
  static inline __attribute__((always_inline)) void apply(Vec *re, Vec *im, const float *, const float *) {
    four(re[0], re[1], re[2], re[3], im[0], im[1], im[2], im[3]);
  }
  static inline __attribute__((always_inline)) void four(Vec &a, Vec &b, Vec &c, Vec &d, Vec &ai, Vec &bi,
                                                         Vec &ci, Vec &di) {
    const Vec ac = a + c, bd = b + d, ac_gap = a - c, bd_gap = b - d;
    const Vec aci = ai + ci, bdi = bi + di, aci_gap = ai - ci, bdi_gap = bi - di;
    a = ac + bd, ai = aci + bdi;
    b = ac_gap + bdi_gap, bi = aci_gap - bd_gap;
    c = ac - bd, ci = aci - bdi;
    d = ac_gap - bdi_gap, di = aci_gap + bd_gap;
  }
};

template <> struct Butterfly<8> {
  static inline __attribute__((always_inline)) void apply(Vec *re, Vec *im, const float *, const float *) {
    constexpr float R = 0.70710678118654752f;
    Butterfly<4>::four(re[0], re[2], re[4], re[6], im[0], im[2], im[4], im[6]);
    Butterfly<4>::four(re[1], re[3], re[5], re[7], im[1], im[3], im[5], im[7]);
    // The odd half, turned by 0, 1, 2 and 3 eighths.
    const Vec b = re[3] + im[3], bi = im[3] - re[3], d = im[7] - re[7], di = im[7] + re[7];
    const Vec even[8] = {re[0], re[2], re[4], re[6], im[0], im[2], im[4], im[6]};
    const Vec first = re[1], first_i = im[1], third = re[5], third_i = im[5];
    re[0] = even[0] + first, im[0] = even[4] + first_i;
    re[4] = even[0] - first, im[4] = even[4] - first_i;
    re[1] = even[1] + R * b, im[1] = even[5] + R * bi;
    re[5] = even[1] - R * b, im[5] = even[5] - R * bi;
    re[2] = even[2] + third_i, im[2] = even[6] - third;
    re[6] = even[2] - third_i, im[6] = even[6] + third;
    re[3] = even[3] + R * d, im[3] = even[7] - R * di;
    re[7] = even[3] - R * d, im[7] = even[7] + R * di;
  }
};

class Transform {
 public:
  // `roots` [2, n]: cosines and sines of 2 pi k / n.
  Transform(Arena &arena, int64_t n, const float *roots) : n_(n) {
    int64_t left = n;
    int radices[MOST_LEVELS];
    const int count = factors(n, radices);
    for (; levels_ < count; levels_++) {
      Level &level = levels[levels_];
      level.radix = radices[levels_];
      level.step = left / level.radix;
      level.cos = arena.take(tables(level.radix)), level.sin = level.cos + level.radix;
      level.pairs = level.sin + level.radix;
      level.twiddles = arena.take(2 * left);
      fill_level(level, left, roots);
      left = level.step;
    }
  }
  // What one takes of an arena.
  static int64_t room(int64_t n) {
    int radices[MOST_LEVELS];
    const int count = factors(n, radices);
    int64_t floats = 0, left = n;
    for (int i = 0; i < count; left /= radices[i++])
      floats += Arena::rounded(tables(radices[i])) + Arena::rounded(2 * left);
    return floats;
  }
  // Floats that a transform needs beside what it transforms, for a thread of its own.
  static int64_t scratch(int64_t n) {
    int radices[MOST_LEVELS];
    const int count = factors(n, radices);
    int64_t longest = 0;
    for (int i = 0; i < count; i++) longest = radices[i] > longest ? radices[i] : longest;
    return 2 * longest * PAIR;
  }

  // Where coordinate j of a transform stands.
  int64_t place(int64_t j) const {
    int64_t found = 0;
    for (int i = 0; i < levels_; i++) {
      found += j % levels[i].radix * levels[i].step;
      j /= levels[i].radix;
    }
    return found;
  }

  // From what `in(j)` gives for each j, in any order, but once.
  template <class In> void forward(float *z, float *scratch, In in) const {
    if (!levels_) return put(z, 0, in(0));
    pass<false>(0, z, scratch, 0, 1, in);
    if (levels_ > 1) below<false>(0, z, scratch, 0, 1, InPlace{z});
  }
  // From what `in(place)` gives, likewise.
  template <class In> void inverse(float *z, float *scratch, In in) const {
    if (!levels_) return put(z, 0, in(0));
    if (levels_ > 1) below<true>(0, z, scratch, 0, 1, in);
    else pass<true>(0, z, scratch, 0, 1, in);
  }

 private:
  static constexpr int MOST_LEVELS = 40;
  static constexpr int64_t NEAR = 4096 / PAIR;  // coordinates that stay in the innermost cache
  static constexpr int ABREAST = 4;  // sums of a long butterfly that are made together

  struct Level {
    int64_t radix, step;  // the block's coordinates j, j + step, ... meet
    float *cos, *sin;     // of 2 pi k / radix
    float *pairs;         // of a long butterfly: ABREAST cosines and sines each, as they are read
    float *twiddles;      // [step, radix - 1] complex numbers
  };

  Level levels[MOST_LEVELS];
  int levels_ = 0;
  const int64_t n_;

  static bool is_short(int64_t radix) { return radix <= 5 || radix == 7 || radix == 8; }
  static int64_t half_rounded(int64_t radix) { return (radix / 2 + ABREAST - 1) / ABREAST * ABREAST; }
  static int64_t tables(int64_t radix) {
    return 2 * radix + (is_short(radix) ? 0 : 2 * half_rounded(radix) * (radix / 2));
  }

  // Odd primes, then fours and twos, then eights.
  static int factors(int64_t n, int *found) {
    int count = 0, twos = 0;
    for (; n > 1 && n % 2 == 0; n /= 2) twos++;
    for (int64_t p = 3; n > 1; p += 2)
      for (; n % p == 0; n /= p) found[count++] = (int)p;
    const int fours = twos == 1 ? 0 : twos % 3 == 1 ? 2 : twos % 3 == 2 ? 1 : 0;
    for (int i = 0; i < fours; i++) found[count++] = 4;
    if (twos == 1) found[count++] = 2, twos = 0;
    for (int i = 0; i < (twos - 2 * fours) / 3; i++) found[count++] = 8;
    return count;
  }

  void fill_level(Level &level, int64_t block, const float *roots) const {
    const int64_t radix = level.radix, half = radix / 2;
    const float *cos = roots, *sin = roots + n_;
    for (int64_t k = 0; k < radix; k++) {
      level.cos[k] = cos[k * (n_ / radix)];
      level.sin[k] = sin[k * (n_ / radix)];
    }
    float *w = level.twiddles;
    for (int64_t j = 0; j < level.step; j++)
      for (int64_t k = 1; k < radix; k++) {
        const int64_t root = j * k * (n_ / block);  // below n: j < block / radix
        *w++ = cos[root], *w++ = -sin[root];
      }
    if (is_short(radix)) return;
    float *next = level.pairs;
    for (int64_t k = 1; k <= half; k += ABREAST)
      for (int64_t j = 1; j <= half; j++) {
        for (int64_t i = k; i < k + ABREAST; i++) *next++ = level.cos[j * i % radix];
        for (int64_t i = k; i < k + ABREAST; i++) *next++ = level.sin[j * i % radix];
      }
  }

  // The levels below one, on as many of its blocks. Forward they come after it, back before it, and the
  // deepest one reads `in`. What is too large for the innermost cache is finished block by block.
  template <bool BACK, class In>
  void below(int level, float *z, float *scratch, int64_t base, int64_t blocks, In in) const {
    const Level &own = levels[level];
    const bool last = level + 2 == levels_;
    if (own.step * own.radix * blocks <= NEAR || last) {
      descend<BACK>(level, z, scratch, base, blocks * own.radix, in, last);
    } else {
      for (int64_t i = 0; i < blocks * own.radix; i++)
        descend<BACK>(level, z, scratch, base + i * own.step, 1, in, last);
    }
    if (BACK) pass<true>(level, z, scratch, base, blocks, InPlace{z});
  }
  template <bool BACK, class In>
  void descend(int level, float *z, float *scratch, int64_t base, int64_t blocks, In in, bool last) const {
    if (!BACK || last) pass<BACK>(level + 1, z, scratch, base, blocks, in);
    if (!last) below<BACK>(level + 1, z, scratch, base, blocks, in);
  }

  // Reads what was put there before.
  struct InPlace {
    const float *z;
    Complex operator()(int64_t j) const { return coordinate(z, j); }
  };

  template <bool BACK, class In>
  void pass(int level, float *z, float *scratch, int64_t base, int64_t blocks, In in) const {
    const Level &l = levels[level];
    switch (l.radix) {
      case 2: return meet<2, BACK>(l, z, base, blocks, in);
      case 3: return meet<3, BACK>(l, z, base, blocks, in);
      case 4: return meet<4, BACK>(l, z, base, blocks, in);
      case 5: return meet<5, BACK>(l, z, base, blocks, in);
      case 7: return meet<7, BACK>(l, z, base, blocks, in);
      case 8: return meet<8, BACK>(l, z, base, blocks, in);
      default: return meet_long<BACK>(l, z, scratch, base, blocks, in);
    }
  }

  template <int R, bool BACK, class In>
  static void meet(const Level &l, float *z, int64_t base, int64_t blocks, In in) {
    // The deepest level, which turns by nothing, is the only one to read elsewhere on the way back; the
    // first level is the only one to do so forward, and turns by 1 at worst.
    constexpr bool in_place = std::is_same_v<In, InPlace>;
    if constexpr (BACK || !in_place) meet<R, BACK, BACK == in_place>(l, z, base, blocks, in);
    else if (l.step == 1) meet<R, BACK, false>(l, z, base, blocks, in);
    else meet<R, BACK, true>(l, z, base, blocks, in);
  }
  template <int R, bool BACK, bool TURNED, class In>
  static void meet(const Level &l, float *z, int64_t base, int64_t blocks, In in) {
    const int64_t step = l.step;
    const float *cos = l.cos, *sin = l.sin, *twiddles = l.twiddles;
    for (int64_t b = 0; b < blocks; b++, base += R * step)
      for (int64_t j = 0; j < step; j++) {
        const float *w = twiddles + 2 * j * (R - 1);
        Vec re[R], im[R];
#pragma GCC unroll 8
        for (int k = 0; k < R; k++) {
          Complex x = in(base + j + k * step);
          if (BACK && TURNED && k) x = times_conjugate(x, w, k - 1);
          re[k] = x.re, im[k] = x.im;
        }
        if (BACK) Butterfly<R>::apply(im, re, cos, sin);
        else Butterfly<R>::apply(re, im, cos, sin);
#pragma GCC unroll 8
        for (int k = 0; k < R; k++) {
          Complex y = {re[k], im[k]};
          if (!BACK && TURNED && k) y = times(y, w, k - 1);
          put(z, base + j + k * step, y);
        }
      }
  }

  // A prime that does not fit into registers: the product with its matrix, made use of its symmetry.
  template <bool BACK, class In>
  static void meet_long(const Level &l, float *z, float *scratch, int64_t base, int64_t blocks, In in) {
    for (int64_t b = 0; b < blocks; b++, base += l.radix * l.step)
      for (int64_t j = 0; j < l.step; j++) {
        const float *w = l.twiddles + 2 * j * (l.radix - 1);
        for (int64_t k = 0; k < l.radix; k++) {
          Complex x = in(base + j + k * l.step);
          if (BACK && k) x = times_conjugate(x, w, k - 1);
          put(scratch, k, BACK ? Complex{x.im, x.re} : x);
        }
        float *found = scratch + l.radix * PAIR;
        multiply(l, scratch, found);
        for (int64_t k = 0; k < l.radix; k++) {
          Complex y = coordinate(found, k);
          if (BACK) y = {y.im, y.re};
          else if (k) y = times(y, w, k - 1);
          put(z, base + j + k * l.step, y);
        }
      }
  }
  static void multiply(const Level &l, float *x, float *y) {
    const int64_t radix = l.radix, half = radix / 2;
    const Complex first = coordinate(x, 0);
    Complex total = first;
    for (int64_t j = 1; j <= half; j++) {
      const Complex a = coordinate(x, j), b = coordinate(x, radix - j), sum = {a.re + b.re, a.im + b.im};
      total = {total.re + sum.re, total.im + sum.im};
      put(x, j, sum);
      put(x, radix - j, {a.re - b.re, a.im - b.im});
    }
    put(y, 0, total);
    const float *pairs = l.pairs;
    for (int64_t k = 1; k <= half; k += ABREAST) {
      Complex even[ABREAST], odd[ABREAST];
#pragma GCC unroll 4
      for (int i = 0; i < ABREAST; i++) even[i] = first, odd[i] = Complex{};
      for (int64_t j = 1; j <= half; j++, pairs += 2 * ABREAST) {
        const Complex sum = coordinate(x, j), gap = coordinate(x, radix - j);
#pragma GCC unroll 4
        for (int i = 0; i < ABREAST; i++) {
          even[i].re += pairs[i] * sum.re, even[i].im += pairs[i] * sum.im;
          odd[i].re += pairs[ABREAST + i] * gap.re, odd[i].im += pairs[ABREAST + i] * gap.im;
        }
      }
      for (int i = 0; i < ABREAST && k + i <= half; i++) {
        put(y, k + i, {even[i].re + odd[i].im, even[i].im - odd[i].re});
        put(y, radix - k - i, {even[i].re - odd[i].im, even[i].im + odd[i].re});
      }
    }
  }
};
